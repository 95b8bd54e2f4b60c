"""The upload page's form: a file that can't be taken is refused before anything is stored."""

from __future__ import annotations

from django import forms
from django.core.exceptions import ValidationError
from django.core.files import File

from .models import Upload
from .uploads import UploadedOrder, UploadError, read_upload


class UploadForm(forms.ModelForm):  # type: ignore[type-arg]
    orders: list[UploadedOrder]

    class Meta:
        model = Upload
        fields = ("file",)

    def clean_file(self) -> File[bytes]:
        file: File[bytes] = self.cleaned_data["file"]
        try:
            self.orders = read_upload(file)
        except UploadError as error:
            raise ValidationError(str(error)) from error
        file.seek(0)
        return file
