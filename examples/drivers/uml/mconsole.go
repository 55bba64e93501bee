package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	mconsoleMagic  = 0xcafebabe
	mconsoleText   = 512
	mconsoleAnswer = 2 * time.Second
	pollInterval   = 500 * time.Millisecond
)

// mconsole is User-mode Linux's control channel: one datagram out, one or more back (Documentation/virt/uml).
type mconsole struct {
	mu   sync.Mutex
	conn net.Conn
}

func newMconsole(file *os.File) (*mconsole, error) {
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the control descriptor is no socket: %v", err)
	}
	return &mconsole{conn: conn}, nil
}

// ask sends one command and returns the answer's text.
func (c *mconsole) ask(command string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	request := new(bytes.Buffer)
	for _, word := range []uint32{mconsoleMagic, 2, uint32(len(command))} {
		binary.Write(request, binary.NativeEndian, word)
	}
	request.WriteString(command)
	request.Write(make([]byte, mconsoleText-len(command)))
	if _, err := c.conn.Write(request.Bytes()); err != nil {
		return "", err
	}
	text, answer := "", make([]byte, 12+mconsoleText)
	for more := true; more; {
		c.conn.SetReadDeadline(time.Now().Add(mconsoleAnswer))
		n, err := c.conn.Read(answer)
		if err != nil {
			return text, err
		}
		if n < 12 {
			return text, fmt.Errorf("an answer of %d bytes", n)
		}
		failed := binary.NativeEndian.Uint32(answer)
		more = binary.NativeEndian.Uint32(answer[4:]) != 0
		text += string(bytes.TrimRight(answer[12:n], "\x00"))
		if failed != 0 {
			return text, fmt.Errorf("%s: %s", command, text)
		}
	}
	return text, nil
}

// ready waits for the first answer: the socket is there before the kernel listens to it.
func (c *mconsole) ready(ctx context.Context) error {
	for {
		if _, err := c.ask("version"); err == nil {
			return nil
		}
		select {
		case <-time.After(pollInterval / 10):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
