// Puts the page together: login, list, viewer.

import { VIRT, call, follow } from "./api.js";
import { Table, merged } from "./machines.js";
import { Viewer } from "./viewer.js";

const at = (id) => document.getElementById(id);
const problem = (error) => {
  at("problem").textContent = error?.message ?? "";
  at("problem").hidden = !error;
};

const viewer = new Viewer({ section: at("viewer"), title: at("viewer-title"), state: at("viewer-state"), screen: at("screen"),
  keys: at("keys") });
const table = new Table(at("rows"), { open: (machine, kind) => viewer.open(machine, kind), failed: problem });
let vms = new Map();
let runs = new Map();

function render() {
  const machines = merged(vms, runs);
  const wanted = at("filter").value.trim().toLowerCase();
  const shown = machines.filter((m) => `${m.key} ${m.state} ${m.node} ${m.address}`.toLowerCase().includes(wanted));
  table.show(shown);
  const running = machines.filter((machine) => machine.running).length;
  at("summary").textContent = `${machines.length} virtual machine${machines.length === 1 ? "" : "s"}, ${running} running`;
  at("empty").hidden = machines.length > 0;
}

function failed(error) {
  problem(error);
  if (error?.status === 401 || error?.status === 403) askForToken();
}

function askForToken() {
  viewer.close();
  at("machines").hidden = true;
  at("logout").hidden = true;
  at("login").hidden = false;
  at("token").focus();
}

async function enter(token) {
  try {
    if (token !== undefined) await call("POST", "login", { token });
    await call("GET", `${VIRT}/virtualmachines?limit=1`);
  } catch (error) {
    askForToken();
    problem(error.status === 401 && token === undefined ? null : error);
    return;
  }
  problem(null);
  at("login").hidden = true;
  at("machines").hidden = false;
  at("logout").hidden = false;
  follow(`${VIRT}/virtualmachines`, (found) => { vms = found; render(); }, failed);
  follow(`${VIRT}/virtualmachineinstances`, (found) => { runs = found; render(); }, failed);
}

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  return document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(at("token").value);
  at("token").value = "";
});
at("logout").addEventListener("click", async () => {
  await call("POST", "logout");
  location.reload();
});
at("theme").addEventListener("click", () => localStorage.setItem("theme", theme(theme() === "dark" ? "light" : "dark")));
at("filter").addEventListener("input", render);
at("close").addEventListener("click", () => viewer.close());
at("full").addEventListener("click", () => at("viewer").requestFullscreen());

theme(localStorage.getItem("theme"));
const given = new URLSearchParams(location.hash.slice(1)).get("token") ?? undefined;
if (given !== undefined) history.replaceState(null, "", location.pathname);
enter(given);
