"""Draws the delivery label of an order and makes the thumbnail that the admin shows."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont
from reportlab.graphics.barcode.code128 import Code128

from .checking import CheckedOrder
from .fonts import BOLD, FOLDER, REGULAR

LABEL: Final = (800, 560)
THUMBNAIL: Final = (400, 280)
EDGE: Final = 36


def render_label(order: CheckedOrder) -> bytes:
    """The label of *order* as a PNG of THUMBNAIL size."""
    label = Image.new("L", LABEL, "white")
    draw = ImageDraw.Draw(label)
    draw.rectangle((8, 8, LABEL[0] - 9, LABEL[1] - 9), outline="black", width=4)
    draw.text((EDGE, 30), "Northwind Traders · Twin Points WA", font=font(REGULAR, 22))
    draw.line((EDGE, 70, LABEL[0] - EDGE, 70), fill="black", width=2)
    for row, line in enumerate(order.ship_to):
        typeface = BOLD if row == 0 else REGULAR
        draw.text((EDGE, 90 + row * 56), line, font=fitting(draw, line, typeface))
    draw_barcode(draw, order.number, top=340, height=140)
    items = sum(item.quantity for item in order.items)
    draw.text((EDGE, 495), f"Order {order.number} · {items} pieces", font=font(REGULAR, 26))
    label.thumbnail(THUMBNAIL)
    png = BytesIO()
    label.save(png, "PNG")
    return png.getvalue()


def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(FOLDER / f"{name}.ttf", size)


def fitting(draw: ImageDraw.ImageDraw, line: str, name: str) -> ImageFont.FreeTypeFont:
    """The largest size at which *line* stays inside the label."""
    sizes = (font(name, size) for size in range(40, 14, -2))
    room = LABEL[0] - 2 * EDGE
    return next((f for f in sizes if draw.textlength(line, font=f) <= room), font(name, 14))


def draw_barcode(draw: ImageDraw.ImageDraw, text: str, *, top: int, height: int) -> None:
    x = float(EDGE)
    bars = bars_of(text)
    module = (LABEL[0] - 2 * EDGE) / sum(width for width, _ in bars)
    for width, black in bars:
        if black:
            draw.rectangle((x, top, x + width * module - 1, top + height), fill="black")
        x += width * module


def bars_of(text: str) -> list[tuple[int, bool]]:
    """Widths in modules and whether each is a bar: reportlab writes bars as A-D, gaps as a-d."""
    code: Any = Code128(text)  # its methods have no types
    code.validate()
    code.encode()
    code.decompose()
    return [(ord(c.lower()) - ord("a") + 1, c.isupper()) for c in code.decomposed]
