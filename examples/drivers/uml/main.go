// A driver for User-mode Linux, written from docs/hri/ alone: a Linux kernel as an ordinary program, no virtualization
// hardware, no privilege. `uml-driver --hri SOCK --fd SOCK`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"

	pb "example.org/uml-driver/hri"
)

// peerListener accepts connections of root and of our own user alone.
type peerListener struct{ *net.UnixListener }

func (l peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil || allowed(conn) {
			return conn, err
		}
		conn.Close()
	}
}

func allowed(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var peer *syscall.Ucred
	raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	return err == nil && (peer.Uid == 0 || int(peer.Uid) == os.Getuid())
}

func listen(network, path string) (*net.UnixListener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		os.Remove(path)
	}
	defer syscall.Umask(syscall.Umask(0o177))
	return net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
}

func run() error {
	hri := flag.String("hri", "", "unix socket to serve the HRI on")
	fd := flag.String("fd", "", "unix socket (SOCK_SEQPACKET) on which descriptors come")
	program := flag.String("linux", "/usr/bin/linux.uml", "the User-mode Linux kernel, as the launcher sees it")
	flag.Parse()
	if *hri == "" || *fd == "" {
		return errors.New("--hri and --fd are needed")
	}
	calls, err := listen("unix", *hri)
	if err != nil {
		return fmt.Errorf("the HRI socket cannot be bound: %w", err)
	}
	tokens, err := listen("unixpacket", *fd)
	if err != nil {
		return fmt.Errorf("the descriptor socket cannot be bound: %w", err)
	}
	d := newDriver(*program)
	go d.fds.serve(peerListener{tokens})
	server := grpc.NewServer(grpc.MaxRecvMsgSize(4 << 20))
	pb.RegisterIdentityServer(server, d)
	pb.RegisterNodeServer(server, d)
	pb.RegisterMachineServiceServer(server, machineService{d: d})
	pb.RegisterStreamServer(server, streamService{d: d})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(peerListener{calls})
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == narrowWord {
		log.Fatal(executeNarrow(os.Args[2:]))
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
