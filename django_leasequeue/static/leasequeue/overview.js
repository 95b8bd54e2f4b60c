// Renews the page of all queues in place, for as long as somebody looks at it. Without it a link
// lets the browser load the page again and again.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
    const box = document.getElementById("renew");
    if (!box) {
        return;
    }
    const pause = box.dataset.seconds * 1000;
    let next;

    const verdicts = () => {
        const told = document.querySelectorAll("[data-verdict]");
        return new Map(Array.from(told, ({dataset}) => [dataset.queue, dataset.verdict]));
    };

    const tell = (text) => {
        document.getElementById("changes").textContent = text;
    };

    const show = (page) => {
        // By its id or address it is found wherever its queue stands by now.
        const same = ({id, attributes: {href}}) => id
            ? page.getElementById(id)
            : page.querySelector(`#queues [href="${CSS.escape(href.value)}"]`);
        const before = verdicts();
        const focused = document.activeElement.closest("#queues :is([id], [href])");
        const focus = focused && same(focused);
        for (const summary of document.querySelectorAll("#queues details[open] > summary")) {
            same(summary)?.parentNode.setAttribute("open", "");
        }
        for (const id of ["as-of", "queues"]) {
            document.getElementById(id).replaceWith(page.getElementById(id));
        }
        focus?.focus({preventScroll: true});
        const changed = Array.from(verdicts()).filter(
            ([queue, verdict]) => before.has(queue) && before.get(queue) !== verdict
        );
        if (changed.length) {
            tell(changed.map((each) => each.join(": ")).join("; "));
        }
    };

    const renew = async () => {
        clearTimeout(next);
        if (!box.checked || document.hidden) {
            return;
        }
        try {
            const answer = await fetch(location.href, {cache: "no-store", redirect: "error"});
            const page = new DOMParser().parseFromString(await answer.text(), "text/html");
            if (!page.getElementById("queues")) {
                throw new Error(answer.statusText);
            }
            // Not under a finger that is down, and not while something is being selected.
            const used = document.getElementById("queues").matches(":active");
            if (!used && getSelection().isCollapsed) {
                show(page);
            }
            clearTimeout(next);
            next = setTimeout(renew, pause);
        } catch {
            const asOf = document.getElementById("as-of");
            asOf.textContent = asOf.dataset.stale;
            tell(asOf.dataset.stale);
            box.checked = false;
        }
    };

    document.getElementById("reload").hidden = true;
    box.closest("label").hidden = false;
    box.checked = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    box.addEventListener("change", renew);
    document.addEventListener("visibilitychange", renew);
    next = setTimeout(renew, pause);
});
