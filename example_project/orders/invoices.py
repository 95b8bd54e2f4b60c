"""Renders an invoice as PDF. The same order gives the same bytes, however often it is rendered."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any, Final
from xml.sax.saxutils import escape

from reportlab.lib.colors import HexColor, white
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate, Spacer, Table

from .checking import CheckedOrder, Item
from .fonts import BOLD, REGULAR

SELLER: Final = "Northwind Traders"
SELLER_LINES: Final = ("One Portals Way · Twin Points WA 98156 · USA", "orders@northwind.example")
BANK: Final = "Please pay to Twin Points Bank, account 98156-1996, naming the invoice number."
DAYS_TO_PAY: Final = 30

INK, ACCENT, PALE = HexColor("#1f2933"), HexColor("#14505c"), HexColor("#eef4f4")
MARGIN: Final = 20 * mm
WIDTH: Final = A4[0] - 2 * MARGIN
FRAME_PADDING: Final = 6  # what reportlab adds inside the margins

BODY = ParagraphStyle("body", fontName=REGULAR, fontSize=8.5, leading=12, textColor=INK)
STRONG = ParagraphStyle("strong", BODY, fontName=BOLD)
TITLE = ParagraphStyle("title", STRONG, fontSize=17, leading=24, textColor=ACCENT)
SMALL = ParagraphStyle("small", BODY, fontSize=7, leading=9)


def invoice_number(order: CheckedOrder) -> str:
    """Follows from the order, so that no redelivery can draw a second number."""
    return f"INV-{order.order_date:%Y}-{order.number}"


def render_invoice(order: CheckedOrder) -> bytes:
    """The invoice of *order*, one PDF of as many A4 pages as its items need."""
    number = invoice_number(order)
    story: list[Flowable] = [
        Spacer(0, 20 * mm),
        addresses(order),
        Spacer(0, 10 * mm),
        Paragraph(f"Invoice {escape(number)}", TITLE),
        Spacer(0, 4 * mm),
        facts(order),
        Spacer(0, 6 * mm),
        items_table(order),
        Spacer(0, 8 * mm),
        Paragraph(f"Payable by {order.order_date + timedelta(DAYS_TO_PAY):%d %B %Y}. {BANK}", BODY),
    ]
    pdf = BytesIO()
    document = SimpleDocTemplate(
        pdf, pagesize=A4, title=f"Invoice {number}", author=SELLER, invariant=1, pageCompression=1,
        leftMargin=MARGIN - FRAME_PADDING, rightMargin=MARGIN - FRAME_PADDING,
        topMargin=MARGIN, bottomMargin=25 * mm,
    )  # fmt: skip
    document.build(story, onFirstPage=first_page, onLaterPages=footer)
    return pdf.getvalue()


def first_page(canvas: Canvas, document: Any) -> None:
    top = A4[1] - MARGIN
    canvas.setFillColor(ACCENT)
    canvas.roundRect(MARGIN, top - 11 * mm, 11 * mm, 11 * mm, 2 * mm, fill=1, stroke=0)
    canvas.setFont(BOLD, 15)
    canvas.drawString(MARGIN + 15 * mm, top - 8 * mm, SELLER)
    canvas.setFont(REGULAR, 7.5)
    for row, line in enumerate(SELLER_LINES):
        canvas.drawRightString(A4[0] - MARGIN, top - 4.5 * mm - row * 4 * mm, line)
    canvas.setFillColor(white)
    canvas.setFont(BOLD, 20)
    canvas.drawCentredString(MARGIN + 5.5 * mm, top - 8.1 * mm, SELLER[0])
    footer(canvas, document)


def footer(canvas: Canvas, document: Any) -> None:
    canvas.setStrokeColor(ACCENT)
    canvas.line(MARGIN, 18 * mm, A4[0] - MARGIN, 18 * mm)
    canvas.setFillColor(INK)
    canvas.setFont(REGULAR, 7)
    canvas.drawString(MARGIN, 13 * mm, f"{SELLER} · {' · '.join(SELLER_LINES)}")
    canvas.drawRightString(A4[0] - MARGIN, 13 * mm, f"Page {document.page}")


def addresses(order: CheckedOrder) -> Table:
    buyer = order.customer
    city = " ".join(filter(None, [buyer.postal_code, buyer.city, buyer.region]))
    bill_to = (buyer.name, buyer.address, city, buyer.country)
    return Table(
        [[block("Bill to", bill_to), block("Ship to", order.ship_to)]],
        colWidths=[WIDTH / 2] * 2,
        style=[("LEFTPADDING", (0, 0), (0, 0), 0), ("VALIGN", (0, 0), (-1, -1), "TOP")],
    )


def block(heading: str, lines: tuple[str, ...]) -> list[Paragraph]:
    name, *rest = (escape(line) for line in lines if line)
    return [Paragraph(heading, SMALL), Paragraph(name, STRONG), *(Paragraph(r, BODY) for r in rest)]


def facts(order: CheckedOrder) -> Table:
    cells = {
        "Order": order.number,
        "Customer": order.customer.code,
        "Order date": f"{order.order_date:%d %B %Y}",
        "Required by": f"{order.required_date:%d %B %Y}",
    }
    return Table(
        [[Paragraph(name, SMALL) for name in cells],
         [Paragraph(escape(text), STRONG) for text in cells.values()]],
        colWidths=[WIDTH / 4] * 4,
        style=[("BACKGROUND", (0, 0), (-1, -1), PALE), ("BOTTOMPADDING", (0, 0), (-1, 0), 0)],
    )  # fmt: skip


def items_table(order: CheckedOrder) -> Table:
    heading = ["No.", "Product", "Quantity", "Unit price", "Discount", "Amount"]
    rows = [heading, *(item_row(item) for item in order.items)]
    sums = [
        ("Subtotal", order.total - order.freight),
        ("Freight", order.freight),
        ("Total USD", order.total),
    ]
    rows += [["", "", "", "", name, money(amount)] for name, amount in sums]
    return Table(
        rows,
        repeatRows=1,
        colWidths=[12 * mm, WIDTH - 110 * mm, 20 * mm, 24 * mm, 26 * mm, 28 * mm],
        style=[
            ("FONT", (0, 0), (-1, -1), REGULAR, 8.5),
            ("TEXTCOLOR", (0, 0), (-1, -1), INK),
            ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
            ("ALIGN", (2, 0), (-1, -1), "RIGHT"),
            ("FONT", (0, 0), (-1, 0), BOLD, 8),
            ("TEXTCOLOR", (0, 0), (-1, 0), white),
            ("BACKGROUND", (0, 0), (-1, 0), ACCENT),
            ("LINEBELOW", (0, 1), (-1, -4), 0.4, HexColor("#c9d6d8")),
            ("NOSPLIT", (0, -4), (-1, -1)),
            ("FONT", (4, -1), (-1, -1), BOLD, 9.5),
            ("LINEABOVE", (4, -1), (-1, -1), 1, ACCENT),
        ],
    )


def item_row(item: Item) -> list[Any]:
    name, packaging = escape(item.product.name), escape(item.product.packaging)
    return [
        item.product.number,
        Paragraph(f"{name}<br/><font size=7>{packaging}</font>", BODY),
        item.quantity,
        money(item.unit_price),
        f"{item.discount:.0%}" if item.discount else "",
        money(item.amount),
    ]


def money(amount: Decimal) -> str:
    return f"{amount:,.2f}"
