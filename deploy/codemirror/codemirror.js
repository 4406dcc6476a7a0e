// What server/playground/static/playground.js uses of CodeMirror 6.
export { yaml } from "@codemirror/lang-yaml";
export { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
export { lintGutter, setDiagnostics } from "@codemirror/lint";
export { Compartment, EditorState } from "@codemirror/state";
export { EditorView, keymap } from "@codemirror/view";
export { tags } from "@lezer/highlight";
export { basicSetup } from "codemirror";
