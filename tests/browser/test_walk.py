"""What an operator does with the mouse, in a real browser, from the upload to the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from django_leasequeue import Queue
from django_leasequeue.testing import run_tasks
from example_project.orders.management.commands.load_sample import customer, product
from example_project.orders.models import Customer, Invoice, Order, Product
from example_project.orders.sample.build import SAMPLE, read

from .conftest import LogIn, Look

pytestmark = pytest.mark.django_db(transaction=True)
DEAD = "/admin/leasequeue/deadletter/"


def the_sample(lines: int, folder: Path) -> Path:
    """The beginning of the sample's upload, as a file."""
    text = (SAMPLE / "upload.csv").read_text(encoding="utf-8").splitlines()
    file = folder / "orders.csv"
    file.write_text("\n".join(text[:lines]) + "\n", encoding="utf-8")
    return file


def customers_and_products() -> None:
    Customer.objects.bulk_create(map(customer, read("customers.csv")))
    Product.objects.bulk_create(map(product, read("products.csv")))


def letters(count: int, error: str = "no stock of article {n}", **how: Any) -> None:
    queue = Queue("mail")
    queue.enqueue_many({"payload": {"n": n}, **how} for n in range(count))
    for n, lease in enumerate(queue.claim(worker="w1", limit=count)):
        queue.fail(lease, error.format(n=n), retryable=False)


def texts(page: Any, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def test_from_the_upload_to_the_mended_order(
    log_in: LogIn, look: Look, tmp_path: Path, mail_folder: Path
) -> None:
    """G22, and whether a person can answer: why did the order fail, and is it done now?"""
    customers_and_products()
    page = log_in("ada", "redrive_task", "cancel_task")

    page.goto("/admin/orders/upload/add/")
    page.set_input_files("input[type=file]", the_sample(12, tmp_path))
    page.click("[name=_save]")
    run_tasks()

    page.goto(DEAD)
    [error] = texts(page, "#result_list .field-error")
    assert "row 10, product “222”" in error
    page.click("#result_list tbody th a")
    letter = page.url

    page.click("dl a:has-text('Order 10251')")
    wrong = page.locator("input[value='222']")
    wrong.fill("22")
    page.click("[name=_save]")

    page.goto(letter)
    page.click("text=Redrive…")
    page.fill("textarea", "Typing error corrected in the order")
    page.click("input.default")
    assert "1 redriven. Ready now" in page.inner_text(".messagelist")
    run_tasks()

    page.goto(letter)
    assert "Done at" in page.inner_text(".standing")
    assert "Typing error corrected in the order" in page.inner_text("#content")
    look(page, "dead-letters")
    assert Invoice.objects.filter(order=Order.objects.get(number="10251")).exists()


def test_why_did_order_17_fail_and_is_it_done_now(log_in: LogIn) -> None:
    """By somebody who knows the order's number, and has never seen the project."""
    queue = Queue("bills")
    queue.enqueue({"order": 17}, id="order-17", path="shop.tasks.bill", max_attempts=1)
    queue.fail(queue.claim(worker="w1")[0], ConnectionRefusedError("card terminal 4 is down"))
    page = log_in("ada", "redrive_task")

    page.click("#content >> text=Dead letters")
    page.fill("#searchbar", "order-17")
    page.keyboard.press("Enter")
    page.click("#result_list tbody th a")
    assert "card terminal 4 is down" in page.inner_text(".standing")
    page.click("text=Redrive…")
    page.fill("textarea", "The terminal is back")
    page.click("input.default")
    assert "Ready since" in page.inner_text(".standing")

    queue.complete(queue.claim(worker="w2")[0])
    page.goto(f"{DEAD}?q=order-17")
    page.click("#content >> text=Transitions")
    page.click("#result_list tbody th a")
    page.click("text=Its task")
    assert "Done at" in page.inner_text(".standing")
    story = page.inner_text("#content")
    for told in ("card terminal 4 is down", "The terminal is back", "ada (user", "w2"):
        assert told in story


def test_filters_and_everything_that_matches(log_in: LogIn, look: Look) -> None:
    """G69: the selection reaches across pages, and the batch is on record."""
    letters(150, tenant="acme")
    letters(5, error="mailbox {n} is full", tenant="rival")
    page = log_in("ada", "redrive_task", "cancel_task")

    page.goto(DEAD)
    page.click("text=By error")
    page.wait_for_load_state()  # a busy server sends it part by part
    look(page, "by-error")
    assert texts(page, ".groups td.count") == ["150", "5"]
    page.click(".groups a:has-text('no stock of article')")
    page.click("#action-toggle")
    page.click("text=Select all 150 dead letters")
    page.select_option("[name=action]", "redrive_selected")
    page.click("button[name=index]")
    page.fill("textarea", "Stock is in")
    page.fill("[name=rate]", "10")
    page.click("text=Dry run")
    assert "Would move" in page.inner_text("#content")
    page.click("input.default")
    assert "150 redriven. One after the other" in page.inner_text(".messagelist")

    page.click("text=Its record")
    look(page, "batch")
    record = page.inner_text("#content")
    assert "ada" in record
    assert "Stock is in" in record
    page.goto(DEAD)
    assert page.locator("#result_list tbody tr").count() == 5


def test_a_large_batch_goes_on_while_its_page_is_open(
    log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G69"""
    monkeypatch.setattr("django_leasequeue.batches.SLICE", 10)
    for module in ("verbs", "task_pages", "batches"):
        monkeypatch.setattr(f"django_leasequeue.admin.{module}.SECONDS_AT_ONCE", 0)
    letters(45)
    page = log_in("ada", "redrive_task", "cancel_task")
    page.goto(f"{DEAD}groups/")

    page.click(".groups >> text=Redrive…")
    page.click("input.default")

    page.wait_for_selector("text=45 redriven")
    assert Queue("mail").depth().visible == 45


def test_without_the_right_nothing_can_be_moved(log_in: LogIn) -> None:
    """G50"""
    letters(1)
    page = log_in("eve")

    page.goto(f"{DEAD}groups/")
    assert page.locator("text=Redrive…").count() == 0
    page.goto(DEAD)
    page.click("#result_list tbody th a")
    assert page.locator("text=Redrive…").count() == 0
    answer = page.goto(f"{page.url.removesuffix('change/')}redrive/")
    assert answer.status == 403


def test_lists_fit_between_the_sidebar_and_the_filters(log_in: LogIn) -> None:
    """On a screen of 1180 pixels, whose width is named nowhere in the pages."""
    path = "shop.warehouse.tasks.send_reminder_to_supplier"
    letters(3, error="no such mailbox: supplier-{n}@warehouse.example", tenant="acme", path=path)
    queue = Queue("mail")
    queue.enqueue_many([{"payload": n, "path": path, "id": f"reminder-{n}"} for n in range(3)])
    queue.claim(worker="mail-worker-7.warehouse.example.internal")
    page = log_in("ada", "redrive_task", "cancel_task", locale="de")

    for url in (
        DEAD,
        f"{DEAD}groups/",
        "/admin/leasequeue/task/",
        "/admin/leasequeue/tasktransition/",
    ):
        page.goto(url)
        [wide, room] = page.eval_on_selector("#result_list", WIDTHS)
        assert page.is_visible("#nav-sidebar")
        assert page.is_visible("#changelist-filter")
        assert wide <= room, url


WIDTHS = "table => [table.scrollWidth, table.closest('.results').clientWidth]"


def test_markup_is_text_in_both_themes(log_in: LogIn) -> None:
    """G52: nothing of it runs."""
    markup = "<script>document.title = 'run'</script><img src=x onerror=\"document.title='run'\">"
    queue = Queue("mail")
    queue.enqueue({"note": markup}, id=markup, tenant=markup)
    queue.fail(queue.claim(worker=markup)[0], markup, retryable=False)
    page = log_in("ada", "redrive_task", "cancel_task", color_scheme="dark")

    for url in (DEAD, f"{DEAD}groups/"):
        page.goto(url)
        assert "<script>" in page.inner_text("#content")
        assert page.title() != "run"
    page.goto(DEAD)
    page.click("#result_list tbody th a")
    assert markup in page.inner_text("#payload + pre").replace("\\", "")
    assert page.title() != "run"
    assert dark(page)


def dark(page: Any) -> bool:
    """Whether the page's ground is darker than its text."""
    ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    return bool(page.evaluate(f"{ground}.reduce((a, b) => a + b) < 300"))
