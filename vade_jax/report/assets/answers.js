/* The list of answers and its filters. Whatever a model wrote goes in as text. */

const PAGE = 12;

function picture(prompts, run, uid) {
  const prompt = prompts[run][uid];
  if (!prompt || !prompt.picture) return html("div", { class: "no" }, "no picture");
  const image = html("img", { src: prompt.picture, alt: `Picture of: ${prompt.question.slice(0, 120)}`, decoding: "async" });
  const line = (text) => html("div", { class: "num" }, text);
  const more = prompt.images > 1 ? line(`1 of ${prompt.images} images`) : null;
  const changed = prompt.variant.startsWith("picture ") ? line(`the original; the model saw it changed: ${prompt.variant.slice(8)}`) : null;
  return html("div", {}, image, more, changed);
}

// Reasons of a verdict that "right", "wrong" and "read as" do not say.
const REASONS = {
  timeout: "comparison timed out",
  crash: "comparison failed",
  unreadable: "could not be read",
  too_long: "too long to be an answer",
  bad_key: "the gold could not be read",
};

function answerNode(answer) {
  const cut = answer.finished === false, fact = (text) => html("span", {}, text);
  const [kind, verdict] = answer.right === null ? ["", "no verdict"] : answer.right ? ["right", "✓ right"] : ["wrong", "✗ wrong"];
  const line = [
    html("span", { class: "verdict" }, verdict),
    fact(answer.extracted === null ? "no answer found" : `read as ${answer.extracted}`),
    Object.hasOwn(REASONS, answer.reason) ? fact(REASONS[answer.reason]) : null,
    answer.reward === null ? null : fact(`reward ${short(answer.reward)}`),
    answer.length === null ? null : fact(`${answer.length} tokens`),
    cut ? fact("cut off at the limit") : null,
    answer.trained === false ? fact("not trained on") : null,
    answer.cut ? fact(`${answer.cut} characters left out`) : null,
  ];
  return html("div", { class: `answer ${kind}` }, html("pre", {}, answer.text), html("div", { class: "facts-line" }, ...line));
}

function groupNode(data, group, answers) {
  const prompt = data.prompts[group.run][group.uid], [alpha, beta, drawn] = group.belief;
  const belief = alpha === null ? null : html("span", { class: "faint" }, `posterior Beta(${short(alpha + 1)}, ${short(beta + 1)}), mean ${short((alpha + 1) / (alpha + beta + 2))}${drawn === null ? "" : `, drew ${short(drawn)}`}`);
  const tags = html("p", { class: "tags" },
    data.runs.length > 1 ? html("span", { class: "tag" }, data.runs[group.run]) : null,
    html("span", { class: "tag" }, `step ${group.step}${group.round > 1 ? `, round ${group.round}` : ""}`), html("span", { class: "tag" }, prompt.subset),
    prompt.variant ? html("span", { class: "tag warn" }, `variant: ${prompt.variant}`) : null,
    html("span", { class: "faint" }, `${group.right} of ${group.count} right`), belief);
  return html("article", { class: "card" },
    html("div", { class: "picture" }, picture(data.prompts, group.run, group.uid)),
    html("div", { class: "body" }, html("p", { class: "question" }, group.question ?? prompt.question),
      html("p", {}, "gold ", html("b", { class: "gold" }, prompt.gold)), tags, ...answers.map(answerNode)));
}

const VERDICTS = {
  "": () => true,
  right: (a) => a.right,
  wrong: (a) => a.right === false, // null: no verdict
  none: (a) => a.extracted === null,
  cut: (a) => a.finished === false,
};

function startAnswers(data) {
  const form = document.getElementById("filters");
  if (!form) return;
  const list = document.getElementById("list"), found = document.getElementById("found"), next = document.getElementById("next");
  const of = (group) => data.prompts[group.run][group.uid];
  const fill = (name, values) => form.elements[name].append(...values.map((v) => html("option", { value: v }, `${v}`)));
  fill("step", [...new Set(data.answers.map((g) => g.step))].sort((a, b) => a - b));
  fill("subset", [...new Set(data.answers.map((g) => of(g).subset))].sort());
  let matches = [], shown = 0;

  function filter() {
    const { run, step, subset, verdict, text } = Object.fromEntries(new FormData(form));
    const words = text.toLowerCase();
    const has = (...texts) => texts.some((t) => t !== null && t.toLowerCase().includes(words));
    matches = [];
    for (const group of data.answers) {
      const prompt = of(group);
      if ((run && group.run !== Number(run)) || (step && group.step !== Number(step)) || (subset && prompt.subset !== subset)) continue;
      const all = !words || has(group.question ?? prompt.question, prompt.gold);
      const answers = group.answers.filter((a) => VERDICTS[verdict](a) && (all || has(a.text, a.extracted)));
      if (answers.length) matches.push([group, answers]);
    }
    const total = matches.reduce((sum, [, answers]) => sum + answers.length, 0);
    found.textContent = matches.length ? `${total} answers to ${matches.length} groups` : "No answer here matches; clear a filter.";
    list.replaceChildren();
    shown = 0;
    show();
  }

  function show() {
    list.append(...matches.slice(shown, shown + PAGE).map(([group, answers]) => groupNode(data, group, answers)));
    shown = Math.min(matches.length, shown + PAGE);
    next.hidden = shown === matches.length;
    next.textContent = `show more (${matches.length - shown} groups left)`;
  }

  let waiting;
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  next.addEventListener("click", show);
  filter();
}
