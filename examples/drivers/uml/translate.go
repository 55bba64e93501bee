package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "example.org/uml-driver/hri"
)

//go:embed manifest.json
var manifestText []byte

type manifest struct {
	Capabilities map[string]struct{ State string }
}

// manifestDigest is the hash of the manifest as canonical JSON: sorted keys, no spaces.
func manifestDigest() string {
	var data any
	json.Unmarshal(manifestText, &data)
	var canonical strings.Builder
	encoder := json.NewEncoder(&canonical)
	encoder.SetEscapeHTML(false)
	encoder.Encode(data)
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(strings.TrimSuffix(canonical.String(), "\n"))))
}

// honoured are the paths in Machine that this driver acts on; a machine that sets anything else is refused.
var honoured = map[string]bool{}

func init() {
	for _, path := range strings.Fields(`id name accelerator cpu.sockets cpu.cores cpu.threads memory.size_bytes
		boot.kernel.initrd_handle boot.kernel.command_line disks.id disks.kind disks.bus disks.read_only
		disks.volume.layers disks.volume.size_bytes consoles.id consoles.kind consoles.log_handle
		lifecycle.on_reboot lifecycle.grace_seconds`) {
		honoured[path] = true
	}
}

// check refuses fields and values that this driver does not know or honour (README.md, section 4.4).
func check(message protoreflect.Message, path string) error {
	if len(message.GetUnknown()) > 0 {
		return refuse(codes.FailedPrecondition, "FIELD_UNKNOWN", path, "the machine has a field of a later HRI minor in "+path)
	}
	var failed error
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		name := strings.TrimPrefix(path+"."+string(field.Name()), ".")
		below := false
		for honouredPath := range honoured {
			below = below || strings.HasPrefix(honouredPath, name+".")
		}
		if !honoured[name] && !below {
			failed = refuse(codes.FailedPrecondition, "CAP_NO", name, name+" is not supported by User-mode Linux")
			return false
		}
		failed = checkValue(field, value, name)
		return failed == nil
	})
	return failed
}

func checkValue(field protoreflect.FieldDescriptor, value protoreflect.Value, name string) error {
	var values []protoreflect.Value
	if field.IsList() {
		for i := range value.List().Len() {
			values = append(values, value.List().Get(i))
		}
	} else {
		values = append(values, value)
	}
	for _, one := range values {
		if field.Enum() != nil && field.Enum().Values().ByNumber(one.Enum()) == nil {
			return refuse(codes.FailedPrecondition, "VALUE_UNKNOWN", name, fmt.Sprintf("%s has the unknown value %d", name, one.Enum()))
		}
		if field.Message() != nil && !honoured[name] {
			if err := check(one.Message(), name); err != nil {
				return err
			}
		} else if field.Message() != nil && len(one.Message().GetUnknown()) > 0 {
			return refuse(codes.FailedPrecondition, "FIELD_UNKNOWN", name, name+" has a field of a later HRI minor")
		}
	}
	return nil
}

// translate plans the start: the kernel is the program, everything else its arguments.
func translate(r *pb.PrepareRequest, program string) (*pb.PrepareResponse, error) {
	machine := r.Machine
	if len(r.ProtoReflect().GetUnknown()) > 0 {
		return nil, refuse(codes.FailedPrecondition, "FIELD_UNKNOWN", "", "the request has a field of a later HRI minor")
	}
	if err := check(machine.ProtoReflect(), ""); err != nil {
		return nil, err
	}
	limit := func(bad bool, field, message string) error {
		if bad {
			return refuse(codes.FailedPrecondition, "LIMIT_EXCEEDED", field, message)
		}
		return nil
	}
	cpu, accelerator := machine.GetCpu(), machine.Accelerator
	for _, err := range []error{
		limit(cpu.GetSockets() > 1 || cpu.GetCores() > 1 || cpu.GetThreads() > 1, "cpu", "User-mode Linux has one CPU"),
		limit(machine.GetMemory().GetSizeBytes() < 48<<20, "memory.size_bytes", "User-mode Linux needs 48 MiB"),
		limit(len(machine.Consoles) > 1, "consoles", "this driver serves one console"),
		limit(accelerator != pb.Accelerator_ACCELERATOR_UNSPECIFIED && accelerator != pb.Accelerator_ACCELERATOR_NONE, "accelerator",
			"User-mode Linux runs without an accelerator"),
		limit(machine.GetLifecycle().GetOnReboot() == pb.Lifecycle_ON_REBOOT_RESET, "lifecycle.on_reboot",
			"User-mode Linux ends when its guest reboots"),
		limit(machine.GetBoot().GetKernel() == nil, "boot", "User-mode Linux is a kernel: give boot.kernel with an initrd"),
	} {
		if err != nil {
			return nil, err
		}
	}
	command, narrowed := []string{program}, false
	if narrowed, _ = narrow(program); narrowed {
		own, err := os.Executable()
		if err != nil {
			return nil, err
		}
		command = []string{own, narrowWord, program}
	}
	launch := &pb.LaunchPlan{Mode: pb.LaunchPlan_MODE_EXEC, WorkingDirectory: true, Env: []string{"TMPDIR=/dev/shm"},
		Argv: append(command, fmt.Sprintf("mem=%d", machine.Memory.SizeBytes), "umid=uml", "uml_dir=.", "noreboot", "con=null")}
	place := func(handle string) uint32 {
		number := uint32(3 + len(launch.Descriptors))
		launch.Descriptors = append(launch.Descriptors, &pb.DescriptorSlot{Number: number, Handle: handle})
		return number
	}
	argue := func(format string, values ...any) { launch.Argv = append(launch.Argv, fmt.Sprintf(format, values...)) }
	kernel := machine.Boot.GetKernel()
	if kernel.InitrdHandle != "" {
		argue("initrd=/proc/self/fd/%d", place(kernel.InitrdHandle))
	}
	made := &pb.PrepareResponse{Launch: launch, Accelerator: pb.Accelerator_ACCELERATOR_NONE, Profile: "uml", DriverHandles: []string{"control"},
		Endpoints: []*pb.Endpoint{{Id: "control", Purpose: pb.Endpoint_PURPOSE_CONTROL, Protocol: "mconsole", ProtocolVersion: "2",
			Socket: pb.Endpoint_SOCKET_DGRAM, Location: &pb.Endpoint_VmmPath{VmmPath: "uml/mconsole"}}}}
	for i, disk := range machine.Disks {
		layers := disk.GetVolume().GetLayers()
		if len(layers) != 1 || layers[0].Format != pb.VolumeHandle_Layer_FORMAT_RAW || disk.Kind > pb.Disk_KIND_DISK || disk.Bus > pb.Disk_BUS_VIRTIO {
			return nil, refuse(codes.FailedPrecondition, "VALUE_NOT_IN_SET", fmt.Sprintf("disks[%d]", i), "a disk must be one raw image")
		}
		flags := ""
		if disk.ReadOnly {
			flags = "r"
		}
		argue("ubd%d%s=/proc/self/fd/%d", i, flags, place(layers[0].Handle))
		made.Devices = append(made.Devices, &pb.DeviceState{Id: disk.Id, Address: fmt.Sprintf("ubd%d", i)})
	}
	for _, console := range machine.Consoles {
		id := "console/" + console.Id
		number := place(id)
		argue("ssl0=fd:%d,fd:%d", number, number)
		made.Endpoints = append(made.Endpoints, &pb.Endpoint{Id: id, Purpose: pb.Endpoint_PURPOSE_CONSOLE, Protocol: "raw", ProtocolVersion: "1",
			Exclusive: true, DeviceId: console.Id, ReaderLogs: console.LogHandle != "", Location: &pb.Endpoint_PairDescriptor{PairDescriptor: number}})
	}
	launch.Argv = append(launch.Argv, strings.Fields(kernel.CommandLine)...)
	if narrowed {
		launch.Argv = append(launch.Argv, withoutWideRegisters)
	}
	made.Confirmed = confirmed(r.Needs)
	handle, err := proto.Marshal(&pb.PrepareResponse{Endpoints: made.Endpoints, Devices: made.Devices, Accelerator: made.Accelerator})
	made.Handle = handle
	return made, err
}

// confirmed is the echo: those of the needs that the manifest states.
func confirmed(needs []string) []string {
	var stated manifest
	json.Unmarshal(manifestText, &stated)
	var met []string
	for _, need := range needs {
		if stated.Capabilities[need].State == "yes" {
			met = append(met, need)
		}
	}
	return met
}
