"""What the lists of tasks share: a task's story, and the verbs that ask before they move."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html, format_html_join
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy as _, override

from ..batches import go_on
from ..models import Batch, DeadLetter, Effect, Task, TaskTransition
from ..transitions import Kind, State, TaskRecord
from ..validation import as_life
from .access import ReadOnlyTaskAdmin, of_own_id, positions
from .bounds import FILTERED_MAX, BoundedPaginator, TaskChangeList, UnreadChangeList, newest
from .filters import state_at, told as narrowed_by
from .timeline import Story, is_gone, story_of
from .verbs import (
    CANCEL,
    SECONDS_AT_ONCE,
    TOLD_MAX,
    ReasonForm,
    Verb,
    by_queue,
    put_on_record,
    rehearse,
    shares_of,
    told,
)
from .wording import breakable, short_id, two_lines

NAMED_MAX: Final = 1000  # tasks of one id, in many queues and tenants


class TaskPagesAdmin(ReadOnlyTaskAdmin):
    """A list of held tasks, the story of each, and what may be done to them."""

    verbs: ClassVar[Sequence[Verb]]
    form_class: ClassVar[type[ReasonForm]]
    until_field: ClassVar[str]  # what the form's ``until`` is an upper bound of
    missing: ClassVar[Any] = _("There is no such task.")
    list_display_links = ("function",)
    paginator = BoundedPaginator

    def until(self, request: HttpRequest) -> Any:
        """The bound that the question is about: what comes after it is not."""
        raise NotImplementedError

    def tells(self, story: Story) -> bool:
        """Whether *story* belongs to these pages."""
        return True

    def held(self, request: HttpRequest) -> QuerySet[Any]:
        """The tasks of this list, whosever they are."""
        raise NotImplementedError

    def some(self, request: HttpRequest) -> QuerySet[Any]:
        """See ReadOnlyTaskAdmin."""
        return self.allowed(request, self.written_down())

    def elsewhere(self, request: HttpRequest, term: str) -> str:
        """In words, where *term* leads to a task that isn't in this list, or not any more."""
        models = (model for model in (Task, DeadLetter, TaskTransition) if model is not self.model)
        pages = ((m._meta.verbose_name_plural, self.link(request, m, "changelist")) for m in models)
        query = urlencode({"q": term})
        links = [(page, query, capfirst(name)) for name, page in pages if page]
        if not links:
            return ""
        told = gettext("Not in this list. A task that has moved on is found among: {places}")
        return format_html(told, places=format_html_join(", ", '<a href="{}?{}">{}</a>', links))

    def written_down(self) -> QuerySet[Any]:
        """The same, as an index has them: without what the clock alone has moved here."""
        raise NotImplementedError

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = self.allowed(request, self.held(request)).order_by(*self.get_ordering(request))
        standing: QuerySet[Any] = rows.annotate(standing=state_at(self.now(request)))
        return standing.defer("payload", "details")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """A life or an id is looked up, not searched for; what isn't one is, in the newest."""
        term = search_term.strip()
        if not term:
            return queryset, False
        named = list(of_own_id(queryset, term).values_list("pk", flat=True)[:NAMED_MAX])
        if life := as_life(term):
            # By its number: a life has no index of its own among the held tasks.
            log = TaskTransition.objects.using(queryset.db).filter(life=life).order_by("id")
            named += log.values_list("pk", flat=True)[:1]
        if named or life:
            vars(request)["leasequeue_found"] = True
            return queryset.filter(pk__in=named), False
        return super().get_search_results(request, queryset, search_term)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[TaskChangeList]:
        # What is sent in isn't answered with the list.
        return UnreadChangeList if request.method == "POST" else TaskChangeList

    @admin.display(description=_("task"), ordering="path")
    def function(self, task: Task) -> str:
        """The function's name, below it the id and the module; the id where there is none."""
        module, _, name = task.path.rpartition(".")
        id = short_id(task.task_id, task)
        if not name:
            return two_lines(task.path or id, task.path and id, full=task.path or task.task_id)
        return two_lines(name, id, breakable(module), full=f"{task.path} {task.task_id}")

    @admin.display(description=_("queue"), ordering="queue")
    def place(self, task: Task) -> str:
        """The queue, below it the tenant and the priority, where it isn't everybody's."""
        priority = task.priority and gettext("priority %d") % task.priority
        return two_lines(task.queue, task.tenant, priority)

    def get_urls(self) -> list[URLPattern]:
        own = [
            self.named_path(
                f"<path:object_id>/{verb.name}/", verb.name, partial(self.verb_view, verb)
            )
            for verb in self.verbs
        ]
        return own + super().get_urls()

    def may(self, request: HttpRequest, verb: Verb) -> bool:
        allowed: bool = getattr(self, f"has_{verb.name}_permission")(request)
        return allowed and self.has_view_permission(request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Tell a task's story; also after it has moved on, when it stands elsewhere."""
        if request.method == "POST" or not self.has_view_permission(request):
            raise PermissionDenied
        story = self.story(request, unquote(object_id))
        if story is None or not self.tells(story):
            self.message_user(request, self.missing, messages.WARNING)
            return HttpResponseRedirect(self.url("changelist"))
        name = f"{story.task.queue}/{story.task.id}"
        return self.page(
            request,
            "story",
            title=capfirst((DeadLetter if story.is_dead else Task)._meta.verbose_name),
            subtitle=name,
            original=name,
            story=story,
            about=self.about(story.task),
            is_gone=bool(story.task.path) and is_gone(story.task.path),
            buttons=self.buttons(request, story),
            twin=self.twin(request, story),
            log=self.link(request, TaskTransition, "changelist"),
            may_view_payload=self.has_view_payload_permission(request),
            effects=self.effects(story.task.life),
        )

    def effects(self, life: UUID) -> QuerySet[Effect]:
        """What the task did elsewhere, or began to do."""
        rows = Effect.objects.using(self.using()).filter(life=life)
        return rows.order_by("started_at", "name")

    def about(self, task: TaskRecord) -> Sequence[tuple[str, str]]:
        """What *task* is about, on the site's own pages: (text, address) each. To be overridden."""
        return ()

    def buttons(self, request: HttpRequest, story: Story) -> list[tuple[Verb, str]]:
        """What may be done to the task here and now, and the addresses that ask."""
        verbs = self.verbs if story.is_held else ()
        return [
            (verb, self.url(verb.name, story.task.seq))
            for verb in verbs
            if story.task.state in verb.states and self.may(request, verb)
        ]

    def twin(self, request: HttpRequest, story: Story) -> str:
        """Address of the same task's page where it stands now, if that isn't here."""
        place = DeadLetter if story.is_dead else Task
        here = place is self.model or not story.is_held
        return "" if here else self.link(request, place, "change", story.task.seq)

    def story(self, request: HttpRequest, number: str) -> Story | None:
        """The story of the task *number*, held or not; None where the user has no such task."""
        born = self.enqueued(request, [number]).first()
        if born is None:
            return None
        held, history = self.store.find(born.life), self.store.history([born.life])
        return story_of(held, history, self.now(request))

    def enqueued(self, request: HttpRequest, numbers: list[str]) -> QuerySet[TaskTransition]:
        """The beginnings of those tasks: a task's number is its first row's place in the log."""
        rows = TaskTransition.objects.filter(kind=Kind.ENQUEUED, pk__in=positions(numbers))
        return self.allowed(request, rows.defer("payload", "data"))

    @admin.action(permissions=["cancel"], description=_("Cancel selected tasks"))
    def cancel_selected(self, request: HttpRequest, tasks: QuerySet[Task]) -> HttpResponse | None:
        return self.ask_of_selected(CANCEL, request, tasks)

    def ask_of_selected(
        self, verb: Verb, request: HttpRequest, tasks: QuerySet[Task]
    ) -> HttpResponse | None:
        """Ask first; then hand the selection to the queue, which knows the rules."""
        back = request.get_full_path()
        if request.POST.get("select_across") == "1":
            return self.ask(verb, request, tasks, back=back)
        return self.ask_of(verb, request, request.POST.getlist(ACTION_CHECKBOX_NAME), back=back)

    def verb_view(self, verb: Verb, request: HttpRequest, object_id: str) -> HttpResponse:
        """The same for the one task of a detail page."""
        if not self.may(request, verb):
            raise PermissionDenied
        back = self.url("change", object_id)
        asked = self.ask_of(verb, request, [unquote(object_id)], back=back)
        return asked or HttpResponseRedirect(back)

    def ask_of(
        self, verb: Verb, request: HttpRequest, numbers: list[str], *, back: str
    ) -> HttpResponse | None:
        """Move the tasks of those numbers, wherever they stand by now: the page may be old."""
        chosen = self.enqueued(request, numbers)
        tasks = self.allowed(request, self.model.objects.filter(pk__in=positions(numbers)))
        return self.ask(verb, request, tasks, chosen=chosen, back=back)

    def ask(
        self,
        verb: Verb,
        request: HttpRequest,
        tasks: QuerySet[Task],
        *,
        back: str,
        chosen: QuerySet[TaskTransition] | None = None,
    ) -> HttpResponse | None:
        """Show the page that asks, or, confirmed, do it and say what came of it.

        Args:
            chosen: the beginnings of the tasks that were chosen one by one; None: all *tasks*.
        """
        confirmed = request.POST if "confirmed" in request.POST else None
        form = self.form_class(confirmed, initial={"until": self.until(request)})
        if verb is CANCEL:
            form.fields.pop("rate", None)
        across = chosen is None
        valid = form.is_valid()
        if valid and across:
            tasks = tasks.filter(**{f"{self.until_field}__lte": form.cleaned_data["until"]})
        if not valid or "rehearse" in request.POST:
            return self.question(verb, request, tasks, form=form, back=back, across=across)
        batch = put_on_record(
            verb,
            tasks if chosen is None else chosen,
            user=request.user,
            reason=form.cleaned_data["reason"],
            rate=form.cleaned_data.get("rate"),
            chosen=self.selection(request) if across else "",
            letters=self.model is DeadLetter,
        )
        return self.carry_out(request, batch)

    def selection(self, request: HttpRequest) -> str:
        """In words, what a selection across pages was narrowed by; for the record, so in the
        site's language and not in the reader's."""
        with override(settings.LANGUAGE_CODE):
            return narrowed_by(self.get_changelist_instance(request))

    def carry_out(self, request: HttpRequest, batch: Batch) -> HttpResponse | None:
        """Go on with *batch* for as long as a page may take; what is left goes on elsewhere."""
        batch = go_on(batch, seconds=SECONDS_AT_ONCE)
        page = self.link(request, Batch, "change", batch.pk)
        if batch.done_at is None and page:
            return HttpResponseRedirect(page)
        said: Any = told(batch, just_now=True)
        if page and batch.total > 1:
            said = format_html('{} <a href="{}">{}</a>', said, page, gettext("Its record"))
        self.message_user(request, said, messages.WARNING if batch.skipped else messages.SUCCESS)
        return None

    def question(
        self,
        verb: Verb,
        request: HttpRequest,
        tasks: QuerySet[Task],
        *,
        form: ReasonForm,
        back: str,
        across: bool,
    ) -> HttpResponse:
        """Say what will happen. A selection across pages is carried as such, not task by task:
        Django refuses forms of more than 1000 fields."""
        meant = tasks if State.LEASED in verb.states else tasks.filter(self.dead(request))
        counted = newest(meant, self.written_down(), self.until_field, FILTERED_MAX)
        first = meant.order_by(*self.get_ordering(request))
        shares = shares_of(counted, self.now(request))
        count = sum(share.count for share in shares)
        numbers = request.POST.getlist(ACTION_CHECKBOX_NAME)
        return self.page(
            request,
            verb.name,
            verb=verb,
            title=verb.title,
            original=verb.button,
            form=form,
            back=back,
            across=across,
            numbers=numbers[:1] if across else numbers,
            checkbox=ACTION_CHECKBOX_NAME,
            count=count,
            is_cut=counted is not meant,
            leased=sum(share.leased for share in shares),
            queues=by_queue(shares),
            rehearsal=rehearse(counted, shares, self.now(request), form)
            if form.is_valid()
            else None,
            tasks=first.defer("payload", "details")[:TOLD_MAX],
            more=max(0, count - TOLD_MAX),
        )
