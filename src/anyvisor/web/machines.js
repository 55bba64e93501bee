// The table of machines: what a VM and its run say together, and what can be done about it.

import { call, instancePath, machinePath } from "./api.js";

const GOOD = new Set(["Running"]);
const QUIET = new Set(["Stopped", "Paused"]);
const BUSY = new Set(["Starting", "Stopping", "Provisioning", "Terminating", "Migrating", "WaitingForVolumeBinding"]);

export function merged(vms, runs) {
  const byName = new Map([...runs.values()].map((run) => [`${run.metadata.namespace}/${run.metadata.name}`, run]));
  return [...vms.values()]
    .map((vm) => describe(vm, byName.get(`${vm.metadata.namespace}/${vm.metadata.name}`)))
    .sort((a, b) => a.key.localeCompare(b.key));
}

function describe(vm, run) {
  const { namespace, name, uid } = vm.metadata;
  const state = vm.status?.printableStatus ?? "Unknown";
  const devices = run?.spec.domain.devices ?? {};
  const running = run?.status?.phase === "Running";
  return {
    uid, namespace, name, state, running,
    key: `${namespace}/${name}`,
    paused: state === "Paused",
    exists: run !== undefined,
    node: run?.status?.nodeName ?? "",
    address: run?.status?.interfaces?.[0]?.ipAddress ?? "",
    hypervisor: run?.status?.hypervisor?.class ?? "",
    serial: running && devices.autoattachSerialConsole !== false,
    display: running && devices.autoattachGraphicsDevice !== false,
  };
}

export function kindOf(state) {
  if (GOOD.has(state)) return "good";
  if (BUSY.has(state)) return "busy";
  return QUIET.has(state) ? "" : "bad";
}

const ACTIONS = [
  { label: "Start", when: (m) => !m.exists, act: (m) => call("PUT", `${machinePath(m)}/start`, {}) },
  { label: "Stop", when: (m) => m.exists, act: (m) => call("PUT", `${machinePath(m)}/stop`, {}) },
  { label: "Restart", when: (m) => m.running, act: (m) => call("PUT", `${machinePath(m)}/restart`, {}) },
  { label: "Pause", when: (m) => m.running && !m.paused, act: (m) => call("PUT", `${instancePath(m)}/pause`, {}) },
  { label: "Resume", when: (m) => m.paused, act: (m) => call("PUT", `${instancePath(m)}/unpause`, {}) },
];

// Rows are changed in place, so that the focus stays where it is.
export class Table {
  constructor(body, { open, failed }) {
    this.body = body;
    this.open = open;
    this.failed = failed;
    this.rows = new Map();
  }

  show(machines) {
    const seen = new Set(machines.map((machine) => machine.uid));
    for (const [uid, row] of this.rows) {
      if (!seen.has(uid)) {
        row.element.remove();
        this.rows.delete(uid);
      }
    }
    machines.forEach((machine, index) => {
      const row = this.rows.get(machine.uid) ?? this.make(machine.uid);
      row.update(machine);
      if (this.body.children[index] !== row.element) this.body.insertBefore(row.element, this.body.children[index] ?? null);
    });
  }

  make(uid) {
    const element = document.createElement("tr");
    const [name, state, node, address, actions] = ["name", "", "", "", "actions"].map((kind) => {
      const cell = element.appendChild(document.createElement("td"));
      cell.className = kind;
      return cell;
    });
    const label = state.appendChild(document.createElement("span"));
    let machine;
    const buttons = ACTIONS.map(({ label: text, when, act }) => {
      const button = this.button(actions, text, async () => {
        button.disabled = true;
        try {
          await act(machine);
          this.failed(null);
        } catch (error) {
          this.failed(new Error(`${text} ${machine.name}: ${error.message}`));
        } finally {
          button.disabled = false;
        }
      });
      return [button, when];
    });
    const serial = this.button(actions, "Console", () => this.open(machine, "console"));
    const display = this.button(actions, "Display", () => this.open(machine, "vnc"));
    const update = (now) => {
      machine = now;
      element.dataset.name = now.key;
      name.replaceChildren(now.name, small(now.namespace));
      label.textContent = now.state;
      label.className = `state ${kindOf(now.state)}`;
      node.replaceChildren(now.node || "–", small(now.hypervisor));
      address.textContent = now.address || "–";
      for (const [button, when] of buttons) {
        button.hidden = !when(now);
        button.setAttribute("aria-label", `${button.textContent} ${now.name}`);
      }
      serial.disabled = !now.serial;
      display.disabled = !now.display;
    };
    const row = { element, update };
    this.rows.set(uid, row);
    return row;
  }

  button(cell, text, act) {
    const button = cell.appendChild(document.createElement("button"));
    button.type = "button";
    button.textContent = text;
    button.dataset.action = text.toLowerCase();
    button.addEventListener("click", act);
    return button;
  }
}

function small(text) {
  const element = document.createElement("small");
  element.textContent = text;
  return element;
}
