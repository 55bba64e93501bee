package main

import (
	"context"
	"errors"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "example.org/uml-driver/hri"
)

const driverName, driverVersion = "uml.example.org", "0.1.0"

func (d *driver) GetInfo(context.Context, *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	return &pb.GetInfoResponse{Driver: driverName, Version: driverVersion, VmmName: "User-mode Linux", MinMinor: hriMinor,
		MaxMinor: hriMinor, ManifestDigest: manifestDigest(), BootId: d.bootID, VmmVersion: "1"}, nil
}

// condition says whether a guest can run here.
func (d *driver) condition() *pb.Condition {
	if _, err := narrow(d.program); err != nil {
		return &pb.Condition{Type: "VmmAvailable", Reason: "NotUsable", Message: "User-mode Linux cannot be used: " + err.Error()}
	}
	return &pb.Condition{Type: "VmmAvailable", Status: true, Reason: "Found", Message: d.program}
}

func (d *driver) Probe(context.Context, *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	found := d.condition()
	return &pb.ProbeResponse{Ready: found.Status, Conditions: []*pb.Condition{found}}, nil
}

func (d *driver) ListEndpoints(_ context.Context, r *pb.ListEndpointsRequest) (*pb.ListEndpointsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, err := d.find(r.MachineId)
	if err != nil {
		return nil, err
	}
	return &pb.ListEndpointsResponse{Endpoints: m.state.Endpoints}, nil
}

func (d *driver) WatchNode(_ *pb.WatchNodeRequest, stream grpc.ServerStreamingServer[pb.NodeFacts]) error {
	found := d.condition()
	facts := &pb.NodeFacts{Health: pb.NodeFacts_HEALTH_UNDETECTED, Conditions: []*pb.Condition{found}}
	if found.Status {
		facts.Health = pb.NodeFacts_HEALTH_HEALTHY
		facts.Accelerators = []*pb.AcceleratorFact{{Accelerator: pb.Accelerator_ACCELERATOR_NONE, Opens: true, RunsGuest: true}}
	}
	if err := stream.Send(facts); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

type machineService struct {
	pb.UnimplementedMachineServiceServer
	d *driver
}

// answer waits for an operation's result; operate for its outcome, for about a second.
func answer[T proto.Message](ctx context.Context, op *operation, err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	select {
	case <-op.done:
	case <-ctx.Done():
		return none, status.FromContextError(ctx.Err()).Err()
	}
	if op.err != nil {
		return none, op.err
	}
	return op.answer.(T), nil
}

func (s machineService) operate(op *operation, err error) (*pb.Operation, error) {
	if err != nil {
		return nil, err
	}
	select {
	case <-op.done:
	case <-time.After(answerWithin):
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return proto.Clone(op.record).(*pb.Operation), nil
}

func (s machineService) Prepare(ctx context.Context, r *pb.PrepareRequest) (*pb.PrepareResponse, error) {
	op, err := s.d.accept("Prepare", r.Mutation, r, false, false, func(context.Context, *machine) (proto.Message, error) {
		if r.GetMachine().GetId() != r.Mutation.MachineId {
			return nil, status.Error(codes.InvalidArgument, "machine.id is not mutation.machine_id")
		}
		made, err := translate(r, s.d.program)
		if err != nil {
			return nil, err
		}
		s.d.mu.Lock()
		defer s.d.mu.Unlock()
		if s.d.machines[r.Machine.Id] != nil {
			return nil, status.Errorf(codes.AlreadyExists, "machine %q exists already; destroy it first", r.Machine.Id)
		}
		s.d.enter(&pb.MachineState{MachineId: r.Machine.Id, Phase: pb.Phase_PHASE_PREPARED, Handle: made.Handle,
			Generation: r.Mutation.Generation, Accelerator: made.Accelerator, Devices: made.Devices, Endpoints: made.Endpoints})
		return made, nil
	})
	return answer[*pb.PrepareResponse](ctx, op, err)
}

// enter adds a machine to the books and tells of it; the mutex must be held.
func (d *driver) enter(state *pb.MachineState) *machine {
	m := &machine{state: state, published: true, turn: make(chan struct{}, 1)}
	d.machines[state.MachineId] = m
	d.emit(&pb.Event{Kind: pb.Event_KIND_STATE, MachineId: state.MachineId, State: state})
	return m
}

func (d *driver) set(m *machine, edit func(*pb.MachineState)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.change(m, edit)
}

// in refuses a call in the wrong phase.
func (d *driver) in(m *machine, phases ...pb.Phase) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, phase := range phases {
		if m.state.Phase == phase {
			return nil
		}
	}
	return refuse(codes.FailedPrecondition, "WRONG_PHASE", "", "the machine is "+m.state.Phase.String())
}

func (s machineService) Start(_ context.Context, r *pb.StartRequest) (*pb.Operation, error) {
	return s.operate(s.d.accept("Start", r.Mutation, r, true, false, func(ctx context.Context, m *machine) (proto.Message, error) {
		if err := s.d.in(m, pb.Phase_PHASE_PREPARED); err != nil {
			return nil, err
		}
		s.d.set(m, func(state *pb.MachineState) { state.Phase = pb.Phase_PHASE_STARTING })
		return nil, s.d.connect(ctx, m, r.Tokens)
	}))
}

// connect takes the control channel and reports that the guest runs.
func (d *driver) connect(ctx context.Context, m *machine, tokens []*pb.DescriptorToken) error {
	files, err := d.fds.collect(ctx, tokens)
	if err != nil {
		return err
	}
	defer closeAll(files)
	file := files["control"]
	if file == nil {
		return status.Error(codes.InvalidArgument, "Start and Adopt need a token for \"control\"")
	}
	delete(files, "control")
	console, err := newMconsole(file)
	if err != nil {
		return err
	}
	if err := console.ready(ctx); err != nil {
		return status.Errorf(codes.NotFound, "the guest's kernel does not answer: %v", err)
	}
	d.set(m, func(state *pb.MachineState) {
		m.console = console
		state.Phase, state.GracefulStopPossible = pb.Phase_PHASE_RUNNING, true
	})
	go d.follow(m, console)
	return nil
}

// follow notices the end: nothing tells a datagram's sender that its receiver is gone, so it is asked.
func (d *driver) follow(m *machine, console *mconsole) {
	for {
		time.Sleep(pollInterval)
		if _, err := console.ask("version"); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			console.conn.Close()
			d.ended(m)
			return
		}
	}
}

// ended records how the guest ended, as far as it is known here.
func (d *driver) ended(m *machine) {
	d.set(m, func(state *pb.MachineState) {
		state.Phase, state.EndReason, state.GracefulStopPossible = pb.Phase_PHASE_STOPPED, m.asked, false
		if m.asked == pb.EndReason_END_REASON_UNSPECIFIED {
			state.Phase, state.EndReason = pb.Phase_PHASE_LOST, pb.EndReason_END_REASON_UNKNOWN
			state.Message = "User-mode Linux ended, and it does not say how"
		}
	})
}

func (s machineService) Stop(_ context.Context, r *pb.StopRequest) (*pb.Operation, error) {
	force := r.Mode == pb.StopRequest_MODE_FORCE
	if r.Mode != pb.StopRequest_MODE_REQUEST && !force || r.Reboot {
		return nil, status.Error(codes.InvalidArgument, "only MODE_REQUEST and MODE_FORCE are known, and no reboot")
	}
	return s.operate(s.d.accept("Stop", r.Mutation, r, true, force, func(ctx context.Context, m *machine) (proto.Message, error) {
		if s.d.in(m, pb.Phase_PHASE_STOPPED, pb.Phase_PHASE_LOST) == nil {
			return nil, nil
		}
		if err := s.d.in(m, pb.Phase_PHASE_RUNNING, pb.Phase_PHASE_PAUSED, pb.Phase_PHASE_STOPPING); err != nil {
			return nil, err
		}
		if force {
			return nil, s.d.halt(ctx, m)
		}
		s.d.set(m, func(state *pb.MachineState) {
			m.asked, state.Phase = pb.EndReason_END_REASON_REQUESTED_SHUTDOWN, pb.Phase_PHASE_STOPPING
		})
		_, err := m.console.ask("cad")
		return nil, internal(err)
	}))
}

// halt ends the guest at once, and waits until it is gone.
func (d *driver) halt(ctx context.Context, m *machine) error {
	d.set(m, func(*pb.MachineState) { m.asked = pb.EndReason_END_REASON_FORCED })
	m.console.ask("halt") // there may be no answer any more
	for {
		if _, err := m.console.ask("version"); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			d.ended(m)
			return nil
		}
		select {
		case <-time.After(pollInterval / 10):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func internal(err error) error {
	if err == nil {
		return nil
	}
	return status.Errorf(codes.Internal, "User-mode Linux does not answer: %v", err)
}

// toggle sends a command that moves a machine from one phase to another.
func (s machineService) toggle(kind, command string, r interface {
	proto.Message
	GetMutation() *pb.Mutation
}, from, to pb.Phase, why pb.PauseReason) (*pb.Operation, error) {
	return s.operate(s.d.accept(kind, r.GetMutation(), r, true, false, func(_ context.Context, m *machine) (proto.Message, error) {
		if s.d.in(m, to) == nil {
			return nil, nil
		}
		if err := s.d.in(m, from); err != nil {
			return nil, err
		}
		if _, err := m.console.ask(command); err != nil {
			return nil, internal(err)
		}
		s.d.set(m, func(state *pb.MachineState) { state.Phase, state.PauseReason = to, why })
		return nil, nil
	}))
}

func (s machineService) Pause(_ context.Context, r *pb.PauseRequest) (*pb.Operation, error) {
	return s.toggle("Pause", "stop", r, pb.Phase_PHASE_RUNNING, pb.Phase_PHASE_PAUSED, pb.PauseReason_PAUSE_REASON_USER)
}

func (s machineService) Resume(_ context.Context, r *pb.ResumeRequest) (*pb.Operation, error) {
	return s.toggle("Resume", "go", r, pb.Phase_PHASE_PAUSED, pb.Phase_PHASE_RUNNING, pb.PauseReason_PAUSE_REASON_UNSPECIFIED)
}

// unserved fails a call about a machine that exists with UNIMPLEMENTED.
func (s machineService) unserved(kind string, r interface {
	proto.Message
	GetMutation() *pb.Mutation
}) (*pb.Operation, error) {
	return s.operate(s.d.accept(kind, r.GetMutation(), r, true, false, func(context.Context, *machine) (proto.Message, error) {
		return nil, status.Errorf(codes.Unimplemented, "%s is not served by this driver", kind)
	}))
}

func (s machineService) Reset(_ context.Context, r *pb.ResetRequest) (*pb.Operation, error) {
	return s.unserved("Reset", r)
}
func (s machineService) Apply(_ context.Context, r *pb.ApplyRequest) (*pb.Operation, error) {
	return s.unserved("Apply", r)
}

func (s machineService) Destroy(ctx context.Context, r *pb.DestroyRequest) (*pb.DestroyResponse, error) {
	op, err := s.d.accept("Destroy", r.Mutation, r, false, true, func(ctx context.Context, m *machine) (proto.Message, error) {
		if m == nil {
			return &pb.DestroyResponse{LastState: &pb.MachineState{MachineId: r.Mutation.MachineId}}, nil
		}
		if m.console != nil && s.d.in(m, pb.Phase_PHASE_STOPPED, pb.Phase_PHASE_LOST) != nil {
			s.d.halt(ctx, m)
		}
		s.d.mu.Lock()
		defer s.d.mu.Unlock()
		last := proto.Clone(m.state).(*pb.MachineState)
		delete(s.d.machines, last.MachineId)
		s.d.emit(&pb.Event{Kind: pb.Event_KIND_REMOVED, MachineId: last.MachineId, State: last})
		return &pb.DestroyResponse{LastState: last}, nil
	})
	return answer[*pb.DestroyResponse](ctx, op, err)
}

func (s machineService) Adopt(ctx context.Context, r *pb.AdoptRequest) (*pb.AdoptResponse, error) {
	op, err := s.d.accept("Adopt", r.Mutation, r, false, false, func(ctx context.Context, m *machine) (proto.Message, error) {
		if m == nil {
			remembered := &pb.PrepareResponse{}
			if err := proto.Unmarshal(r.Handle, remembered); err != nil || len(remembered.Endpoints) == 0 {
				return nil, status.Error(codes.InvalidArgument, "the handle was not made by this driver")
			}
			m = &machine{state: &pb.MachineState{MachineId: r.Mutation.MachineId, Generation: r.Mutation.Generation, Handle: r.Handle,
				Accelerator: remembered.Accelerator, Devices: remembered.Devices, Endpoints: remembered.Endpoints}}
			if err := s.d.connect(ctx, m, r.Tokens); err != nil {
				return nil, err
			}
			s.d.mu.Lock()
			m.turn, m.published, s.d.machines[r.Mutation.MachineId] = make(chan struct{}, 1), true, m
			s.d.emit(&pb.Event{Kind: pb.Event_KIND_STATE, MachineId: r.Mutation.MachineId, State: m.state})
			s.d.mu.Unlock()
		}
		s.d.mu.Lock()
		defer s.d.mu.Unlock()
		state := proto.Clone(m.state).(*pb.MachineState)
		return &pb.AdoptResponse{State: state, Endpoints: state.Endpoints}, nil
	})
	return answer[*pb.AdoptResponse](ctx, op, err)
}

func (s machineService) Inspect(_ context.Context, r *pb.InspectRequest) (*pb.MachineState, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	m, err := s.d.find(r.MachineId)
	if err != nil {
		return nil, err
	}
	return proto.Clone(m.state).(*pb.MachineState), nil
}

func (s machineService) Watch(r *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.Event]) error {
	boot, next := r.BootId, r.FromSequence
	for {
		events, following, grown := s.d.since(boot, next)
		for _, event := range events {
			if err := stream.Send(event); err != nil {
				return err
			}
		}
		boot, next = s.d.bootID, following
		select {
		case <-grown:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (s machineService) GetOperation(_ context.Context, r *pb.GetOperationRequest) (*pb.Operation, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if op := s.d.operations[r.OperationId]; op != nil {
		return proto.Clone(op.record).(*pb.Operation), nil
	}
	return nil, status.Errorf(codes.NotFound, "operation %q is not known to this driver process", r.OperationId)
}

func (s machineService) CancelOperation(ctx context.Context, r *pb.CancelOperationRequest) (*pb.Operation, error) {
	s.d.mu.Lock()
	op := s.d.operations[r.OperationId]
	s.d.mu.Unlock()
	if op != nil {
		op.cancel()
		select {
		case <-op.done:
		case <-ctx.Done():
		}
	}
	return s.GetOperation(ctx, &pb.GetOperationRequest{OperationId: r.OperationId})
}

type streamService struct {
	pb.UnimplementedStreamServer
	d *driver
}

// Open says which endpoint is the console.
func (s streamService) Open(_ context.Context, r *pb.OpenStreamRequest) (*pb.OpenStreamResponse, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	m, err := s.d.find(r.MachineId)
	if err != nil {
		return nil, err
	}
	for _, endpoint := range m.state.Endpoints {
		if endpoint.Purpose == pb.Endpoint_PURPOSE_CONSOLE && r.Kind == pb.StreamKind_STREAM_KIND_CONSOLE {
			return &pb.OpenStreamResponse{StreamId: endpoint.Id, Protocol: "raw", Way: &pb.OpenStreamResponse_EndpointId{EndpointId: endpoint.Id}}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "the machine has no such stream")
}

func (s streamService) Close(context.Context, *pb.CloseStreamRequest) (*pb.CloseStreamResponse, error) {
	return &pb.CloseStreamResponse{}, nil
}
