"""Render the typed models of the KubeVirt API from the table of its fields (tests/data/kubevirt_schema.json).

    python tools/genmodels.py [--check]

Names, types and constraints come from the table, the docstrings of classes and fields from the modules as
they stand: write them there and run this again. Fields that the project adds to the API are in `EXTRA`.
"""

import ast
import json
import keyword
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "tests/data/kubevirt_schema.json"
TARGET = ROOT / "src/anyvisor/api"
CORE = "k8s.io.api.core.v1."
META = "k8s.io.apimachinery.pkg.apis.meta.v1."

# Each module with the types that start it, lowest first. A type that no line names goes to the first module
# that uses it, so a module may use its own types and those of the lines above.
MODULES: dict[str, tuple[str, ...]] = {
    "core": (CORE,),
    "kubevirt.access": ("v1.AccessCredential",),
    "kubevirt.network": ("v1.Network", "v1.Interface"),
    "kubevirt.volumes": ("v1.Volume", "v1.UtilityVolume", "v1.HotplugVolumeSource"),
    "kubevirt.devices": ("v1.Devices",),
    "kubevirt.domain": ("v1.DomainSpec",),
    "kubevirt.vmi_spec": ("v1.VirtualMachineInstanceSpec",),
    "kubevirt.vmi_status": ("v1.VirtualMachineInstanceStatus",),
    "kubevirt.vmi": ("kubevirt.io/v1/VirtualMachineInstance", "v1.VirtualMachineInstanceTemplateSpec"),
    "kubevirt.datavolume": ("v1.DataVolumeTemplateSpec",),
    "kubevirt.vm": ("kubevirt.io/v1/VirtualMachine",),
    "kubevirt.migration": ("kubevirt.io/v1/VirtualMachineInstanceMigration",),
    "kubevirt.replicaset": ("kubevirt.io/v1/VirtualMachineInstanceReplicaSet",),
    "kubevirt.preset": ("kubevirt.io/v1alpha3/VirtualMachineInstancePreset",),
    "kubevirt.configuration": ("v1.KubeVirtConfiguration",),
    "kubevirt.kubevirt": ("kubevirt.io/v1/KubeVirt",),
    "kubevirt.snapshot": (
        "snapshot.kubevirt.io/v1beta1/VirtualMachineSnapshot",
        "snapshot.kubevirt.io/v1beta1/VirtualMachineSnapshotContent",
        "snapshot.kubevirt.io/v1beta1/VirtualMachineRestore",
    ),
    "kubevirt.export": ("export.kubevirt.io/v1/VirtualMachineExport",),
    "kubevirt.clone": ("clone.kubevirt.io/v1beta1/VirtualMachineClone",),
    "kubevirt.pool": ("pool.kubevirt.io/v1beta1/VirtualMachinePool",),
    "kubevirt.instancetype": (
        "instancetype.kubevirt.io/v1beta1/VirtualMachineInstancetype",
        "instancetype.kubevirt.io/v1beta1/VirtualMachineClusterInstancetype",
    ),
    "kubevirt.preference": (
        "instancetype.kubevirt.io/v1beta1/VirtualMachinePreference",
        "instancetype.kubevirt.io/v1beta1/VirtualMachineClusterPreference",
    ),
    "kubevirt.policy": ("migrations.kubevirt.io/v1alpha1/MigrationPolicy",),
    "kubevirt.backup": (
        "backup.kubevirt.io/v1alpha1/VirtualMachineBackup",
        "backup.kubevirt.io/v1alpha1/VirtualMachineBackupTracker",
    ),
    "kubevirt.plugin": ("plugin.kubevirt.io/v1alpha1/Plugin",),
    "kubevirt.subresources": (),
}

# Written by hand: not rendered, only imported.
META_TYPES = frozenset({"ObjectMeta", "ListMeta", "LabelSelector", "LabelSelectorRequirement", "Condition"})
# Types whose short name another one has, too.
CLASSES = {
    CORE + "PersistentVolumeClaimVolumeSource": "PodPersistentVolumeClaimVolumeSource",
    "v1beta1.DataVolumeSource": "DataVolumeImportSource",
    "v1beta1.VirtualMachine": "CapturedVirtualMachine",
    "v1beta1.PersistentVolumeClaim": "CapturedPersistentVolumeClaim",
}
ATTRIBUTES = {
    "VSOCKCID": "vsock_cid",
    "lastFailedVMIUID": "last_failed_vmi_uid",
    "matchSELinuxLevelOnMigration": "match_selinux_level_on_migration",
    "newSMBiosSerial": "new_smbios_serial",
    "completionTimeoutPerGiB": "completion_timeout_per_gib",
    "ramFB": "ramfb",
}
# The modules whose names the facade `kubevirt.v1` offers: what group version kubevirt.io/v1 is made of.
LAST = tuple(MODULES).index("kubevirt.kubevirt")
FACADE = (*tuple(MODULES)[: LAST + 1], "kubevirt.subresources")
# Types that the table shows only in place, without a name of their own.
INLINE = {
    "spec": "{kind}Spec",
    "status": "{kind}Status",
    "spec.source": CORE + "TypedLocalObjectReference",
    "status.latestCheckpoint": "v1alpha1.BackupCheckpoint",
    "status.latestCheckpoint.volumes": "v1alpha1.BackupVolumeInfo",
    "spec.domainHooks": "v1alpha1.DomainHook",
    "spec.domainHooks[].cel": "v1alpha1.DomainHookCEL",
    "spec.domainHooks[].sidecar": "v1alpha1.DomainHookSidecar",
    "spec.nodeHooks": "v1alpha1.NodeHook",
    "spec.mutatingAdmissionPolicies": "v1alpha1.AdmissionReference",
    "spec.mutatingAdmissionWebhooks": "v1alpha1.AdmissionReference",
    "spec.validatingAdmissionPolicies": "v1alpha1.AdmissionReference",
    "spec.validatingAdmissionWebhooks": "v1alpha1.AdmissionReference",
}
EXTRA: dict[str, dict[str, dict[str, Any]]] = {
    "v1.VirtualMachineInstanceSpec": {"hypervisor": {"type": "string"}},
    "v1.VirtualMachineInstanceStatus": {"hypervisor": {"type": "object", "ref": "v1.HypervisorStatus"}},
    "v1.VirtualMachineStatus": {"hypervisor": {"type": "object", "ref": "v1.HypervisorStatus"}},
    "v1.HypervisorStatus": {
        "class": {"type": "string"},
        "driver": {"type": "string"},
        "driverVersion": {"type": "string"},
        "hriMinor": {"type": "integer", "format": "int32"},
        "images": {"type": "object", "map": True, "values": "string"},
        "planDigest": {"type": "string"},
        "reason": {"type": "string"},
        "runnerUp": {"type": "string"},
        "accelerator": {"type": "string"},
    },
}
# Enumerations of Kubernetes' own types (`enum`) stand in the OpenAPI document, but in no definition.
FACTS = {
    "crdEnum": "enum",
    "minimum": "minimum",
    "maximum": "maximum",
    "minItems": "minItems",
    "maxItems": "maxItems",
    "minLength": "minLength",
    "maxLength": "maxLength",
    "crdDefault": "default",
}
Field = dict[str, Any]


@dataclass
class Types:
    """The named types of the table with their fields, and which module each one is in."""

    fields: dict[str, dict[str, Field]] = field(default_factory=dict[str, dict[str, Any]])
    module: dict[str, str] = field(default_factory=dict)

    def add(self, owner: str, rows: list[Field], kind: str = "") -> None:
        """Record the rows of one kind or body, each under the type that it belongs to."""
        owners = {"": owner}
        for row in rows:
            path: str = row["path"]
            parent, _, name = path.rpartition(".")
            if parent not in owners or owners[parent].startswith(META):
                continue
            facts = {key: value for key, value in row.items() if key != "path"}
            inline = _inline(path, facts, kind)
            if inline and facts.get("array"):
                facts["items"] = inline
            elif inline:
                facts["ref"] = inline
            self.fields.setdefault(owners[parent], {}).setdefault(name, facts)
            target = facts.get("items") or facts.get("values") or facts.get("ref")
            if target:
                suffix = "[]" if facts.get("array") else "{}" if facts.get("map") else ""
                owners[path + suffix] = target
                if is_type(target) and not target.startswith(META):
                    self.fields.setdefault(target, {})


def _inline(path: str, facts: Field, kind: str) -> str | None:
    if "ref" in facts or facts.get("map") or facts.get("items", "object") != "object":
        return None
    if facts["type"] not in ("object", "array"):
        return None
    if path == "metadata":
        return META + "ObjectMeta"
    return INLINE[path].format(kind=kind)


def is_type(name: str) -> bool:
    """Whether the table's name of a type is that of an object, not of a scalar."""
    return name not in ("string", "integer", "boolean", "number", "object", "Quantity")


def load() -> Types:
    """All types of the table, the kinds first."""
    table = json.loads(TABLE.read_text())
    types = Types()
    for name, kind in table["kinds"].items():
        types.add(name, kind["fields"], f"v1alpha1.{kind['kind']}")
    for name, rows in table["subresourceBodies"].items():
        if name not in types.fields:
            types.add(name, rows)
    for name, extra in EXTRA.items():
        types.fields.setdefault(name, {}).update(extra)
    return types


def references(fields: dict[str, Field]) -> list[str]:
    """The types that the fields name, in their order."""
    found: list[str] = []
    for _, facts in sorted(fields.items()):
        target = facts.get("items") or facts.get("values") or facts.get("ref")
        if target and is_type(target) and not target.startswith(META) and target not in found:
            found.append(target)
    return found


def assign(types: Types) -> dict[str, list[str]]:
    """The types of each module, every one after those that it names."""
    layout: dict[str, list[str]] = {module: [] for module in MODULES}

    def place(name: str, module: str) -> None:
        if name in types.module:
            return
        types.module[name] = module
        for target in references(types.fields[name]):
            place(target, module)
        layout[module].append(name)

    for module, seeds in MODULES.items():
        for seed in seeds:
            matching = (name for name in types.fields if name.startswith(seed)) if seed == CORE else (seed,)
            for name in list(matching):
                place(name, module)
    for name in types.fields:
        place(name, "kubevirt.subresources")
    return layout


def class_name(name: str) -> str:
    """The Python class of a type or kind."""
    return CLASSES.get(name) or re.split(r"[./]", name)[-1]


def attribute(name: str) -> str:
    """The Python attribute of a JSON field."""
    text = re.sub(r"I[Pp]v([46])", r"Ipv\1", name).replace("IDs", "Ids").replace("CIDRs", "Cidrs")
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text).lower()
    text = ATTRIBUTES.get(name, text)
    return text + "_" if keyword.iskeyword(text) else text


def camel(text: str) -> str:
    """The JSON name that the models' renaming rule gives an attribute."""
    head, *rest = text.split("_")
    return head + "".join(part.title() for part in rest)


@dataclass
class Rendered:
    """One module being written: what it must import, and its lines."""

    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    lines: list[str] = field(default_factory=list)


def scalar(facts: Field, out: Rendered) -> str:
    """The Python type of a field that is no object, array or map."""
    wire = "anyvisor.api.wire"
    kind, known = facts["type"], facts.get("k8s")
    if known == "Quantity":
        alias = "QuantityValue"
    elif known in ("Time", "Duration"):
        alias = known
    elif known == "IntOrString" or kind in ("integer|string", ["string", "number"]):
        alias = "IntOrString"
    elif kind == ["string", "null"]:
        alias = "Time"
    elif facts.get("format") in ("int32", "int64"):
        alias = facts["format"].title()
    else:
        return {"string": "str", "integer": "int", "boolean": "bool", "number": "float"}[kind]
    out.imports[wire].add(alias)
    return alias


def named(name: str, types: Types, module: str, out: Rendered) -> str:
    """The Python type for a named type, imported where it is another module's."""
    if name == "Quantity":
        out.imports["anyvisor.api.wire"].add("QuantityValue")
        return "QuantityValue"
    if not is_type(name):
        return {"string": "str", "integer": "int", "boolean": "bool"}[name]
    short = class_name(name)
    if name.startswith(META):
        assert short in META_TYPES, f"{name}: write it in anyvisor.api.meta"
        out.imports["anyvisor.api.meta"].add(short)
    elif types.module[name] != module:
        out.imports[f"anyvisor.api.{types.module[name]}"].add(short)
    return short


def annotation(facts: Field, types: Types, module: str, owner: str, out: Rendered) -> str:
    """The annotation of a field."""
    if facts.get("array"):
        item = named(facts["items"], types, module, out)
        item = f'"{item}"' if facts["items"] == owner else item
        text = f"tuple[{item}, ...]"
    elif facts.get("map"):
        text = f"dict[str, {named(facts['values'], types, module, out)}]"
    elif "ref" in facts:
        text = named(facts["ref"], types, module, out)
    else:
        text = scalar(facts, out)
    if not facts.get("required"):
        text += " | None"
    schema = schema_arguments(facts)
    if schema:
        out.imports["anyvisor.api.wire"].add("Schema")
        out.imports["typing"].add("Annotated")
        text = f"Annotated[{text}, Schema({', '.join(schema)})]"
    return text


def literal(text: str) -> str:
    """A string as source, in pieces that fit on a line."""
    pieces = re.split(r"(?<= \|\| )|(?<= && )", text)
    return repr(text) if len(text) < 60 else "(" + " ".join(map(repr, pieces)) + ")"


def schema_arguments(facts: Field) -> list[str]:
    """The arguments of `Schema` for what the type does not say."""
    arguments: list[str] = []
    if facts.get("listMapKeys"):
        arguments.append(f"keys={tuple(facts['listMapKeys'])!r}")
    if facts.get("listType") == "set":
        arguments.append("unique=True")
    if facts.get("nullable") or facts["type"] == ["string", "null"]:
        arguments.append("nullable=True")
    if facts.get("preserveUnknown"):
        arguments.append("opaque=True")
    if facts.get("cel"):
        arguments.append(f"rules=({''.join(literal(rule) + ', ' for rule in facts['cel'])})")
    extra = {new: facts[old] for old, new in FACTS.items() if old in facts}
    if "pattern" in facts and facts.get("k8s") != "Quantity":
        extra["pattern"] = facts["pattern"]
    if extra:
        arguments.append(f"facts={extra!r}")
    return arguments


def field_line(name: str, facts: Field, types: Types, module: str, owner: str, out: Rendered) -> str:
    """The definition of one field."""
    attr = attribute(name)
    text = annotation(facts, types, module, owner, out)
    required = facts.get("required")
    if camel(attr) == name:
        return f"    {attr}: {text}" + ("" if required else " = None")
    out.imports["msgspec"].add("field")
    default = "" if required else "default=None, "
    return f'    {attr}: {text} = field({default}name="{name}")'


def docstrings(path: Path) -> dict[tuple[str, ...], str]:
    """The docstrings of a module as it stands: of the module, its classes and their fields."""
    found: dict[tuple[str, ...], str] = {}
    if not path.exists():
        return found
    tree = ast.parse(path.read_text())
    found[()] = ast.get_docstring(tree) or ""
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        found[(node.name,)] = ast.get_docstring(node) or ""
        for first, second in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(first, ast.AnnAssign)
                and isinstance(first.target, ast.Name)
                and isinstance(second, ast.Expr)
                and isinstance(second.value, ast.Constant)
            ):
                found[node.name, first.target.id] = str(second.value.value)
    return found


def render(module: str, names: list[str], types: Types) -> str:
    """The source of one module."""
    docs = docstrings(TARGET / (module.replace(".", "/") + ".py"))
    out = Rendered()
    out.imports["anyvisor.api.meta"].add("Model")
    for name in names:
        short = class_name(name)
        out.lines += ["", "", f"class {short}(Model, frozen=True, kw_only=True):"]
        out.lines += [f'    """{docs.get((short,)) or "Undocumented."}"""', ""]
        fields = types.fields[name]
        ordered = sorted(fields.items(), key=lambda item: item[0])
        for key, facts in ordered:
            out.lines.append(field_line(key, facts, types, module, name, out))
            if doc := docs.get((short, attribute(key))):
                out.lines.append(f'    """{doc}"""')
    head = [f'"""{docs.get((), "") or "Undocumented."}"""', ""]
    imports = sorted(out.imports.items())
    head += [f"from {source} import {', '.join(sorted(imported))}" for source, imported in imports]
    return "\n".join([*head, *out.lines]) + "\n"


def facade(layout: dict[str, list[str]]) -> str:
    """The source of the module that offers all types of kubevirt.io/v1 by one name."""
    lines = ['"""All types of `kubevirt.io/v1`, by one import."""', ""]
    offered: list[str] = []
    for module in FACADE:
        names = sorted(class_name(name) for name in layout[module]) if module.startswith("kubevirt.") else []
        if names:
            lines.append(f"from anyvisor.api.{module} import {', '.join(names)}")
            offered += names
    lines += ["", f"__all__ = {sorted(offered)!r}"]
    return "\n".join(lines) + "\n"


def formatted(source: str) -> str:
    """The source as the formatter and the import sorter want it."""
    for command in (["check", "--select", "I,RUF022", "--fix", "-q"], ["format", "-q"]):
        arguments = [
            str(Path(sys.executable).with_name("ruff")),
            *command,
            "--stdin-filename",
            "src/anyvisor/api/model.py",
            "-",
        ]
        done = subprocess.run(arguments, input=source, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
        source = done.stdout
    return source


def main() -> int:
    """Write all modules, or say which ones are stale."""
    types = load()
    layout = assign(types)
    stale: list[str] = []
    sources = {module: render(module, names, types) for module, names in layout.items()}
    sources["kubevirt.v1"] = facade(layout)
    for module, raw in sources.items():
        path = TARGET / (module.replace(".", "/") + ".py")
        source = formatted(raw)
        if not path.exists() or path.read_text() != source:
            stale.append(module)
            if "--check" not in sys.argv:
                path.write_text(source)
    count = sum(map(len, types.fields.values()))
    print(f"{len(types.fields)} types, {count} fields; changed: {', '.join(stale) or 'none'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
