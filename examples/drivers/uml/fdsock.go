package main

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "example.org/uml-driver/hri"
)

const (
	tokenBytes  = 16
	tokenLife   = 10 * time.Second
	maxTokens   = 256
	maxFdPeers  = 8
	tokensACall = 64
)

// fdStore holds the descriptors that came and were not named yet (docs/hri/README.md, section 6).
type fdStore struct {
	mu      sync.Mutex
	arrived map[string]*os.File
	changed chan struct{}
}

func newFdStore() *fdStore {
	return &fdStore{arrived: map[string]*os.File{}, changed: make(chan struct{})}
}

func (s *fdStore) serve(listener net.Listener) {
	free := make(chan struct{}, maxFdPeers)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		free <- struct{}{}
		go func() {
			s.receive(conn.(*net.UnixConn))
			conn.Close()
			<-free
		}()
	}
}

// receive takes tokens until the peer breaks the form or leaves.
func (s *fdStore) receive(conn *net.UnixConn) {
	message, control := make([]byte, tokenBytes+1), make([]byte, syscall.CmsgSpace(4*4))
	for {
		n, cn, flags, _, err := conn.ReadMsgUnix(message, control)
		if err != nil || n+cn == 0 {
			return
		}
		var fds []int
		if parsed, err := syscall.ParseSocketControlMessage(control[:cn]); err == nil {
			for i := range parsed {
				more, _ := syscall.ParseUnixRights(&parsed[i])
				fds = append(fds, more...)
			}
		}
		if n != tokenBytes || len(fds) != 1 || flags&(syscall.MSG_CTRUNC|syscall.MSG_TRUNC) != 0 {
			for _, fd := range fds {
				syscall.Close(fd)
			}
			return
		}
		syscall.CloseOnExec(fds[0])
		if file := os.NewFile(uintptr(fds[0]), "token"); !s.put(string(message[:n]), file) {
			file.Close()
			return
		}
	}
}

func (s *fdStore) put(token string, file *os.File) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.arrived) >= maxTokens || s.arrived[token] != nil {
		return false
	}
	s.arrived[token] = file
	close(s.changed)
	s.changed = make(chan struct{})
	time.AfterFunc(tokenLife, func() {
		if file := s.take(token); file != nil {
			file.Close()
		}
	})
	return true
}

func (s *fdStore) take(token string) *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	file := s.arrived[token]
	delete(s.arrived, token)
	return file
}

// collect returns the descriptors that a call names, by handle; all or none.
func (s *fdStore) collect(ctx context.Context, tokens []*pb.DescriptorToken) (map[string]*os.File, error) {
	if len(tokens) > tokensACall {
		return nil, status.Errorf(codes.ResourceExhausted, "%d descriptor tokens; %d are allowed", len(tokens), tokensACall)
	}
	ctx, cancel := context.WithTimeout(ctx, tokenLife)
	defer cancel()
	found := map[string]*os.File{}
	for _, token := range tokens {
		file, err := s.wait(ctx, string(token.Token))
		if err != nil {
			closeAll(found)
			return nil, err
		}
		found[token.Handle] = file
	}
	return found, nil
}

func (s *fdStore) wait(ctx context.Context, token string) (*os.File, error) {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if file := s.take(token); file != nil {
			return file, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, status.Error(codes.InvalidArgument, "a descriptor that the call names did not arrive on fd.sock")
		}
	}
}

func closeAll(files map[string]*os.File) {
	for _, file := range files {
		file.Close()
	}
}
