// The playground: three editors, the answer on their texts, and links that contain them.
// Texts reach the page as text nodes only; nothing is requested from other hosts.

import {
  basicSetup, EditorView, HighlightStyle, lintGutter, setDiagnostics, syntaxHighlighting, tags, yaml,
} from "./codemirror.js";

const FILES = { rules: "rules.yaml", pod: "pod.yaml", cluster: "cluster.yaml" };
const PAUSE_MS = 120; // after a key, before the answer is requested
const MAX_LINK = 32_000; // characters of a fragment: what browsers, chats and trackers keep

const byId = (id) => document.getElementById(id);
const nonce = document.querySelector("meta[name=style-nonce]").content;

// ---- Elements

/** Return an element with a class and children, of which texts become text nodes. */
function element(name, className = "", ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** Return a line, which is one part or several, as elements: spans with their tone, and buttons for places in the rules. */
function line(parts) {
  return [parts].flat().map((part) => {
    if (part.tone === undefined) return part;
    if (part.line === undefined) return element("span", part.tone, part.text);
    const text = part.text.trimStart();
    const button = element("button", "place", text);
    button.type = "button";
    button.addEventListener("click", () => showPlace("rules", part));
    return element("span", "", part.text.slice(0, part.text.length - text.length), button);
  });
}

function tree(each) {
  const item = element("li", "", ...line(each.line));
  if (each.children.length) item.append(element("ul", "", ...each.children.map(tree)));
  return item;
}

function table(each) {
  const row = (cells, name) => element("tr", "", ...cells.map((cell) => element(name, "", ...cell)));
  const head = element("thead", "", row(each.heads.map((text) => [text]), "th"));
  const body = element("tbody", "", ...each.rows.map((cells) => row(cells.map(line), "td")));
  const scroll = element("div", "scroll", element("table", "", head, body));
  scroll.tabIndex = 0;
  return scroll;
}

function item(each) {
  const made = element("article", `item ${each.tone}`, element("h3", "", ...line(each.title)));
  const fields = each.fields.flatMap((field) => [element("dt", "", field.name), element("dd", "", ...line(field.value))]);
  if (fields.length) made.append(element("dl", "", ...fields));
  if (each.table) made.append(table(each.table));
  return made;
}

/** Return a block of an answer as elements. */
function block(each) {
  if (each.children) return [element("ul", "tree", tree(each))];
  if (each.items) return each.items.map(item);
  const lines = each.lines.flatMap((parts) => [...line(parts), "\n"]);
  while (lines[0] === "" || lines[0] === "\n") lines.shift();
  return [element("pre", "", ...lines)];
}

function problem(each) {
  const tone = each.severity === "error" ? "bad" : "warning";
  const { file, line: number, column } = each.source;
  const place = element("button", "place", `${file}:${number}:${column}`);
  place.type = "button";
  const editor = Object.keys(FILES).find((name) => FILES[name] === file);
  place.addEventListener("click", () => showPlace(editor, each.source));
  const head = element("h3", "", element("span", tone, each.severity), `: ${each.message} `);
  // A remedy has code between backquotes.
  const marked = each.remedy.split("`").map((text, index) => (index % 2 ? element("code", "", text) : text));
  const code = element("p", "", place, element("span", "quiet", ` [${each.code}]`));
  return element("article", `item ${tone}`, head, code, element("p", "remedy", ...marked));
}

// ---- Editors

const style = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName), tags.keyword, tags.typeName], color: "var(--info)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null, tags.labelName], color: "var(--warning)" },
  { tag: [tags.comment, tags.meta, tags.punctuation, tags.separator], color: "var(--quiet)" },
]);

const TINT = "color-mix(in srgb, var(--info) 22%, transparent)";

const theme = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--card)", fontSize: ".85rem" },
  ".cm-scroller": { fontFamily: "ui-monospace, monospace" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { color: "var(--quiet)", backgroundColor: "var(--code)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--info) 8%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: TINT },
  ".cm-selectionMatch, .cm-searchMatch, &.cm-focused .cm-matchingBracket": { backgroundColor: TINT },
  ".cm-panels, .cm-tooltip": { color: "var(--text)", backgroundColor: "var(--card)", borderColor: "var(--line)" },
  ".cm-button, .cm-textfield": { color: "inherit", background: "var(--code)", borderColor: "var(--line)" },
  ".cm-foldPlaceholder": { color: "var(--quiet)", backgroundColor: "var(--code)", borderColor: "var(--line)" },
  // In place of pictures in data: URLs, which the policy forbids.
  ".cm-lintRange": { backgroundImage: "none !important", textDecoration: "underline wavy var(--warning)" },
  ".cm-lintRange-error": { textDecorationColor: "var(--error)" },
  ".cm-lint-marker": { content: "'' !important", width: ".6em", height: ".6em", margin: ".2em", borderRadius: ".2em" },
  ".cm-lint-marker-error": { backgroundColor: "var(--error)", borderRadius: "50%" },
  ".cm-lint-marker-warning": { backgroundColor: "var(--warning)" },
  ".cm-diagnostic": { whiteSpace: "pre-wrap", maxWidth: "40rem" },
});

function createEditor(name) {
  return new EditorView({
    parent: byId(name),
    extensions: [
      basicSetup,
      yaml(),
      syntaxHighlighting(style),
      theme,
      lintGutter(),
      EditorView.cspNonce.of(nonce),
      EditorView.contentAttributes.of({ "aria-labelledby": `${name}-label`, tabindex: "0" }),
      EditorView.updateListener.of((update) => update.docChanged && textChanged()),
    ],
  });
}

const editors = Object.fromEntries(Object.keys(FILES).map((name) => [name, createEditor(name)]));

function readTexts() {
  const entries = Object.entries(editors).map(([name, view]) => [FILES[name], view.state.doc.toString().toWellFormed()]);
  return Object.fromEntries(entries);
}

function writeTexts(texts) {
  for (const [name, view] of Object.entries(editors)) {
    const text = texts[FILES[name]];
    if (text !== undefined) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
  }
}

/** Return the offset of a place, whose column counts characters, not UTF-16 units. */
function offset(state, { line: number, column }) {
  const found = state.doc.line(Math.min(number, state.doc.lines));
  const before = [...found.text].slice(0, column - 1).join("").length;
  return found.from + before;
}

function showPlace(name, place) {
  const view = editors[name];
  const anchor = offset(view.state, place);
  const { to } = view.state.doc.lineAt(anchor);
  view.dispatch({ selection: { anchor, head: to }, effects: EditorView.scrollIntoView(anchor, { y: "center" }) });
  view.focus();
}

function underline(problems) {
  for (const [name, view] of Object.entries(editors)) {
    const diagnostics = problems.filter((each) => each.source.file === FILES[name]).map((each) => {
      const from = offset(view.state, each.source);
      const to = Math.min(offset(view.state, { ...each.source, column: each.source.column + each.length }), view.state.doc.length);
      return { from, to: Math.max(from, to), severity: each.severity, message: `${each.message} [${each.code}]\n${each.remedy}` };
    });
    view.dispatch(setDiagnostics(view.state, diagnostics));
  }
}

// ---- Answers

let limits = { maxBytes: 0 };
let timer = 0;
let request = new AbortController();
let shared = ""; // the fragment with the present texts

/** Show a sentence about the answer, or, in the place `message`, about what a button did. */
function showStatus(text, bad = false, place = "status") {
  byId(place).textContent = text;
  byId(place).className = bad ? "bad" : "quiet";
}

function showMessage(text, bad = false) {
  showStatus(text, bad, "message");
}

function textChanged() {
  showMessage("");
  if (shared) history.replaceState(null, "", location.pathname); // the link has the texts from before
  shared = "";
  clearTimeout(timer);
  request.abort();
  byId("results").ariaBusy = "true";
  timer = setTimeout(() => requestAnswer(), PAUSE_MS);
}

/** Post the texts; return the response, or undefined, with a status, if there is none. */
async function post(path, signal) {
  const body = JSON.stringify(readTexts());
  const bytes = Object.values(readTexts()).reduce((sum, text) => sum + new Blob([text]).size, 0);
  if (bytes > limits.maxBytes) {
    showStatus(`The texts have ${Math.ceil(bytes / 1024)} KiB; at most ${limits.maxBytes / 1024} KiB are evaluated.`, true);
    return undefined;
  }
  try {
    const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
    if (response.ok) return response;
    showStatus(`${(await response.json()).error}.`, true);
  } catch (error) {
    if (error.name !== "AbortError") showStatus("The playground's server does not answer.", true);
  }
  return undefined;
}

async function requestAnswer() {
  request = new AbortController();
  const { signal } = request;
  const response = await post("answer", signal);
  if (signal.aborted || response === undefined) return;
  const answer = await response.json();
  if (!signal.aborted) showAnswer(answer);
}

function showAnswer(answer) {
  const { problems = [], decisions = [], report = [], notices = [], limit = "" } = answer;
  showStatus(limit, Boolean(limit));
  underline(problems);
  const errors = problems.filter((each) => each.severity === "error").length;
  const counts = [[errors, "error"], [problems.length - errors, "warning"]].filter(([count]) => count);
  byId("problem-count").textContent = counts.map(([count, noun]) => `${count} ${noun}${count > 1 ? "s" : ""}`).join(", ") || "none";
  byId("problems").replaceChildren(...problems.toSorted((a, b) => a.severity.localeCompare(b.severity)).map(problem));
  const none = () => element("p", "quiet", errors ? "unknown: correct the errors first" : "unknown");
  const some = (made) => (made.length ? made : [none()]);
  const blocks = decisions.flat();
  byId("outcome").textContent = answer.explain?.verdict.toLowerCase() ?? "";
  byId("decision").replaceChildren(...some(blocks.filter((each) => each.children).flatMap(block)));
  byId("change").replaceChildren(...some(blocks.filter((each) => each.lines).flatMap(block)));
  byId("start").replaceChildren(...some(report.flatMap(block)), ...notices.map((text) => element("p", "notice", text)));
  byId("results").ariaBusy = "false";
}

// ---- Links, which no server sees: the fragment of a URL is not sent

async function pass(bytes, stream, limit) {
  const chunks = [];
  let length = 0;
  for await (const chunk of new Blob([bytes]).stream().pipeThrough(stream)) {
    length += chunk.length;
    if (length > limit) throw new RangeError("too long");
    chunks.push(chunk);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

async function encodeLink(texts) {
  const bytes = await pass(JSON.stringify(texts), new CompressionStream("deflate-raw"), Infinity);
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function decodeLink(fragment) {
  const binary = atob(fragment.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = await pass(Uint8Array.from(binary, (each) => each.charCodeAt(0)), new DecompressionStream("deflate-raw"), 8 * limits.maxBytes);
  const texts = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  if (!Object.values(FILES).every((name) => typeof texts[name] === "string")) throw new TypeError("no texts");
  return texts;
}

async function share() {
  const link = await encodeLink(readTexts());
  if (link.length > MAX_LINK) {
    const excess = `${link.length.toLocaleString("en")} characters of at most ${MAX_LINK.toLocaleString("en")}`;
    showMessage(`The texts are too much for a link: ${excess}. Save them instead.`, true);
    return;
  }
  shared = `#${link}`;
  history.replaceState(null, "", shared);
  const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
  showMessage(copied ? "The link is copied, and in the address bar." : "The link is in the address bar.");
}

async function openLink() {
  const { hash } = location;
  if (hash === "" || hash === shared) return;
  try {
    writeTexts(await decodeLink(hash.slice(1)));
    shared = hash;
  } catch {
    showMessage("The link is damaged: its texts cannot be read.", true);
  }
}

// ---- Files

async function save() {
  const response = await post("save");
  if (response === undefined) return;
  const link = element("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = "playground.zip";
  link.click();
  URL.revokeObjectURL(link.href);
  showMessage("Saved: unpack playground.zip, then run gpu-rules test in its folder.");
}

// ---- Start

const { start, examples, maxBytes } = await (await fetch("examples.json")).json();
limits = { maxBytes };
const select = byId("example");
for (const group of new Set(examples.map((each) => each.group))) {
  const options = element("optgroup");
  options.label = group;
  examples.forEach((each, index) => each.group === group && options.append(new Option(each.title, index)));
  select.append(options);
}
select.addEventListener("change", () => writeTexts(examples[select.value].texts));
byId("share").addEventListener("click", share);
byId("save").addEventListener("click", save);
addEventListener("hashchange", openLink);
writeTexts(start);
await openLink();
