"""Configuration files of a node's components."""

from pathlib import Path
from typing import Any

Json = dict[str, Any]


def containerd_config(place: Path, socket: Path, cni_programs: Path, pause: str) -> str:
    """containerd 2.x. Without CAP_SYS_RESOURCE, OOM scores cannot be lowered; network namespaces stay out of /run."""
    return f"""version = 3
root = "{place}/containerd/root"
state = "{place}/containerd/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni_programs}"]
    conf_dir = "{place}/cni"
"""


def cni(place: Path, pods: str) -> Json:
    """A bridge, addresses from the node's range, host ports."""
    ranges = [[{"subnet": pods}]]
    bridge: Json = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{place}/cni-ipam",
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap: Json = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "br", "plugins": [bridge, portmap]}


def kubelet_config(place: Path, pki: Path, node: str, address: str, socket: Path) -> Json:
    """A kubelet beside others on one machine, with thresholds that a developer's disk does not trip over."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/{node}-server.crt",
        "tlsPrivateKeyFile": f"{pki}/{node}-server.key",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/k8s-{node}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "enforceNodeAllocatable": [],
        "healthzBindAddress": "127.0.0.1",
        "resolvConf": "",
        "clusterDomain": "cluster.local",
        "staticPodPath": f"{place}/manifests",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "maxPods": 200,
        "podLogsDir": f"{place}/podlogs",
    }


def kube_proxy_config(kubeconfig: Path, node: str, pods: str) -> Json:
    """nftables mode; kernel-wide connection tracking limits stay as they are."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": pods,
        "hostnameOverride": node,
        "conntrack": {"maxPerCore": 0, "min": 0},
    }
