package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "example.org/uml-driver/hri"
)

const (
	hriMinor       = 1
	keptEvents     = 1024
	keptOperations = 1024
	answerWithin   = time.Second
	operationLife  = 5 * time.Minute
)

var (
	machineID   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	operationID = regexp.MustCompile(`^[!-~]{1,64}$`)
)

// machine is one entry of the books. Its fields are guarded by the driver's mutex.
type machine struct {
	state     *pb.MachineState
	console   *mconsole
	asked     pb.EndReason // why it is expected to end
	published bool
	turn      chan struct{} // held by the operation that acts on it
}

// operation is one accepted call: its record, and its outcome once done is closed.
type operation struct {
	digest [32]byte
	record *pb.Operation
	cancel context.CancelFunc
	done   chan struct{}
	answer proto.Message
	err    error
}

type driver struct {
	pb.UnimplementedIdentityServer
	pb.UnimplementedNodeServer
	program    string
	bootID     string
	fds        *fdStore
	mu         sync.Mutex
	machines   map[string]*machine
	operations map[string]*operation
	order      []string
	events     []*pb.Event
	head       uint64
	grown      chan struct{}
}

func newDriver(program string) *driver {
	id := make([]byte, 16)
	rand.Read(id)
	return &driver{
		program: program, bootID: hex.EncodeToString(id), fds: newFdStore(), grown: make(chan struct{}),
		machines: map[string]*machine{}, operations: map[string]*operation{},
	}
}

// refuse makes an error with one finding.
func refuse(code codes.Code, name, field, message string) error {
	finding := &pb.Finding{Code: name, Severity: "error", Field: field, Message: message, Retry: "after_change"}
	detailed, err := status.New(code, message).WithDetails(&pb.ErrorDetail{Findings: []*pb.Finding{finding}})
	if err != nil {
		return status.Error(code, message)
	}
	return detailed.Err()
}

// find returns a machine of the books; the mutex must be held.
func (d *driver) find(id string) (*machine, error) {
	if m := d.machines[id]; m != nil {
		return m, nil
	}
	return nil, status.Errorf(codes.NotFound, "machine %q is not known to this driver process; adopt it first", id)
}

// body does the work of an operation; m is nil where the machine need not exist.
type body func(ctx context.Context, m *machine) (proto.Message, error)

// accept begins an operation, or returns the one of an earlier call with this id (README.md, section 4.1).
func (d *driver) accept(kind string, mut *pb.Mutation, request proto.Message, needed, force bool, do body) (*operation, error) {
	if !machineID.MatchString(mut.GetMachineId()) || !operationID.MatchString(mut.GetOperationId()) {
		return nil, status.Error(codes.InvalidArgument, "machine_id or operation_id is not in form")
	}
	if mut.Minor != hriMinor {
		return nil, refuse(codes.FailedPrecondition, "SKEW", "mutation.minor", "this driver speaks HRI minor 1 alone")
	}
	digest := digestOf(kind, request)
	d.mu.Lock()
	defer d.mu.Unlock()
	if earlier := d.operations[mut.OperationId]; earlier != nil {
		if earlier.digest != digest {
			return nil, status.Errorf(codes.AlreadyExists, "operation id %q was used with other content", mut.OperationId)
		}
		return earlier, nil
	}
	m := d.machines[mut.MachineId]
	if m == nil && needed {
		_, err := d.find(mut.MachineId)
		return nil, err
	}
	if m != nil {
		if mut.Generation < m.state.Generation {
			return nil, refuse(codes.FailedPrecondition, "GENERATION_OLD", "mutation.generation", "a newer generation was applied")
		}
		m.state.Generation = mut.Generation
	}
	ctx, cancel := context.WithTimeout(context.Background(), operationLife)
	op := &operation{digest: digest, cancel: cancel, done: make(chan struct{}), record: &pb.Operation{
		Id: mut.OperationId, MachineId: mut.MachineId, Kind: kind, State: pb.Operation_STATE_RUNNING}}
	if force {
		for _, other := range d.operations {
			if other.record.MachineId == mut.MachineId && other.record.State == pb.Operation_STATE_RUNNING {
				other.cancel()
			}
		}
	}
	d.remember(op)
	go d.perform(ctx, op, m, do)
	return op, nil
}

func digestOf(kind string, request proto.Message) [32]byte {
	content := proto.Clone(request)
	if tokens := content.ProtoReflect().Descriptor().Fields().ByName("tokens"); tokens != nil {
		content.ProtoReflect().Clear(tokens)
	}
	data, _ := proto.MarshalOptions{Deterministic: true}.Marshal(content)
	return sha256.Sum256(append([]byte(kind+"\x00"), data...))
}

func (d *driver) remember(op *operation) {
	d.operations[op.record.Id] = op
	d.order = append(d.order, op.record.Id)
	for len(d.order) > keptOperations {
		delete(d.operations, d.order[0])
		d.order = d.order[1:]
	}
}

// perform runs one operation to its outcome, in its machine's turn.
func (d *driver) perform(ctx context.Context, op *operation, m *machine, do body) {
	defer op.cancel()
	var answer proto.Message
	var err error
	if m != nil {
		select {
		case m.turn <- struct{}{}:
			answer, err = do(ctx, m)
			<-m.turn
		case <-ctx.Done():
			err = ctx.Err()
		}
	} else {
		answer, err = do(ctx, nil)
	}
	if ctx.Err() == context.Canceled && err != nil {
		err = status.Errorf(codes.Canceled, "%s was cancelled before it was done", op.record.Kind)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	op.answer, op.err = answer, err
	op.record.State, op.record.Percent = pb.Operation_STATE_DONE, 100
	if err != nil {
		op.record.State, op.record.Percent = pb.Operation_STATE_FAILED, 0
		if status.Code(err) == codes.Canceled {
			op.record.State = pb.Operation_STATE_CANCELLED
		}
		op.record.ErrorCode, op.record.Message = statusName(err), status.Convert(err).Message()
		for _, detail := range status.Convert(err).Details() {
			if found, ok := detail.(*pb.ErrorDetail); ok {
				op.record.Findings = found.Findings
			}
		}
	}
	if kind := op.record.Kind; kind != "Prepare" && kind != "Adopt" && kind != "Destroy" {
		d.emit(&pb.Event{Kind: pb.Event_KIND_OPERATION, MachineId: op.record.MachineId, Operation: op.record})
	}
	close(op.done)
}

func statusName(err error) string {
	names := map[codes.Code]string{codes.InvalidArgument: "INVALID_ARGUMENT", codes.FailedPrecondition: "FAILED_PRECONDITION",
		codes.NotFound: "NOT_FOUND", codes.Canceled: "CANCELLED", codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
		codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL"}
	if name := names[status.Code(err)]; name != "" {
		return name
	}
	return "UNKNOWN"
}

// emit numbers an event and keeps it; the mutex must be held.
func (d *driver) emit(event *pb.Event) {
	d.head++
	event = proto.Clone(event).(*pb.Event)
	event.BootId, event.Sequence, event.TimeUnixNano = d.bootID, d.head, uint64(time.Now().UnixNano())
	d.events = append(d.events, event)
	if len(d.events) > keptEvents {
		d.events = d.events[1:]
	}
	close(d.grown)
	d.grown = make(chan struct{})
}

// change edits a machine's state and reports it. A final phase is never left. The mutex must be held.
func (d *driver) change(m *machine, edit func(*pb.MachineState)) {
	if final(m.state.Phase) {
		return
	}
	edit(m.state)
	if m.published {
		d.emit(&pb.Event{Kind: pb.Event_KIND_STATE, MachineId: m.state.MachineId, State: m.state})
	}
}

func final(phase pb.Phase) bool {
	return phase == pb.Phase_PHASE_STOPPED || phase == pb.Phase_PHASE_CRASHED || phase == pb.Phase_PHASE_LOST
}

// since returns the events from a number on, and the next number; the whole state where the past is not known.
func (d *driver) since(bootID string, from uint64) ([]*pb.Event, uint64, chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bootID == d.bootID && from >= 1 && from <= d.head+1 && d.head+1-from <= uint64(len(d.events)) {
		return append([]*pb.Event(nil), d.events[uint64(len(d.events))-(d.head+1-from):]...), d.head + 1, d.grown
	}
	var whole []*pb.Event
	add := func(kind pb.Event_Kind, id string, state *pb.MachineState) {
		event := &pb.Event{BootId: d.bootID, Sequence: d.head, TimeUnixNano: uint64(time.Now().UnixNano()), Kind: kind, MachineId: id, State: state}
		whole = append(whole, proto.Clone(event).(*pb.Event))
	}
	for id, m := range d.machines {
		if m.published {
			add(pb.Event_KIND_RESYNC, id, m.state)
		}
	}
	add(pb.Event_KIND_SYNCED, "", nil)
	return whole, d.head + 1, d.grown
}
