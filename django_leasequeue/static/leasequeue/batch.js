// Goes on with an unfinished batch for as long as its page is open. Without it the button does,
// a slice at a time, and a worker does in any case.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
    const form = document.getElementById("go-on");
    if (!form) {
        return;
    }
    form.hidden = true;
    const goOn = async () => {
        try {
            const answer = await fetch(form.action, {
                method: "POST",
                body: new FormData(form),
                headers: {Accept: "application/json"},
                redirect: "error",
            });
            const batch = await answer.json();
            document.getElementById("passed").textContent = batch.passed;
            document.getElementById("progress").value = batch.passed;
            if (batch.done) {
                window.location.reload();
            } else {
                await goOn();
            }
        } catch {
            form.hidden = false;
        }
    };
    goOn();
});
