"""The typeface of invoices and labels: it travels with reportlab, so no machine has to have it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import reportlab
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

FOLDER: Final = Path(reportlab.__file__).parent / "fonts"
REGULAR: Final = "Vera"
BOLD: Final = "VeraBd"

for name in (REGULAR, BOLD):
    pdfmetrics.registerFont(TTFont(name, f"{name}.ttf"))
