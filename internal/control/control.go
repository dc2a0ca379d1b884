// Package control is how the tools of a node's operator talk to the node: over
// a socket in its data directory, which only its user can open. So far they ask
// for backups.
//
// The client sends one line, "backup". The server answers in lines:
//
//	ready PATH     the backup is in PATH, until the client closes the connection
//	error TEXT     there is none
package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// socketName is the socket in the data directory; backupPrefix begins the names
// of backups that are being fetched.
const (
	socketName   = "control.sock"
	backupPrefix = "backup-under-way-"
)

// maxLine bounds what a peer may send; patience bounds how long it may take.
const (
	maxLine  = 4096
	patience = 10 * time.Second
)

// A Node is what can be asked for something.
type Node interface {
	// Backup makes a backup in a directory that does not exist.
	Backup(ctx context.Context, dir string) error
}

// A Server answers. Close ends it.
type Server struct {
	dir  string
	node Node
	log  *slog.Logger
	ln   net.Listener
	one  chan struct{} // has room for one: one backup at a time
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Serve begins to answer for the node whose data is in dir. Backups that an
// earlier server left behind are removed.
func Serve(dir string, node Node, log *slog.Logger) (*Server, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasPrefix(name.Name(), backupPrefix) {
			if err := os.RemoveAll(filepath.Join(dir, name.Name())); err != nil {
				return nil, err
			}
		}
	}
	path := filepath.Join(dir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ln net.Listener
	err = inDir(dir, func(short string) (err error) {
		ln, err = net.Listen("unix", short)
		return err
	})
	if err != nil {
		return nil, err
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // by the short name it would not be found
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{dir: dir, node: node, log: log, ln: ln, one: make(chan struct{}, 1), stop: stop}
	s.wg.Add(1)
	go s.accept(ctx)
	return s, nil
}

// Close ends the server and what it is doing, and removes the socket.
func (s *Server) Close() error {
	s.stop()
	err := s.ln.Close()
	s.wg.Wait()
	return errors.Join(err, os.Remove(filepath.Join(s.dir, socketName)))
}

func (s *Server) accept(ctx context.Context) {
	defer s.wg.Done()
	for {
		conn, err := s.ln.Accept()
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("control socket", "err", err)
			}
			return
		}
		select {
		case s.one <- struct{}{}:
		default:
			fmt.Fprintln(conn, "error another backup is being made")
			conn.Close()
			continue
		}
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			defer func() { <-s.one }()
			s.serve(ctx, conn)
		}()
	}
}

// serve answers one connection.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	line, err := readLine(bufio.NewReaderSize(conn, maxLine))
	if err != nil {
		return
	}
	if line != "backup" {
		fmt.Fprintf(conn, "error unknown request %q\n", line)
		return
	}
	path := filepath.Join(s.dir, fmt.Sprintf("%s%d", backupPrefix, time.Now().UnixNano()))
	defer os.RemoveAll(path)
	gone := make(chan struct{})
	go func() { // the client goes, now or when it has fetched the backup
		defer close(gone)
		defer cancel()
		_ = conn.SetReadDeadline(time.Time{})
		var b [1]byte
		_, _ = conn.Read(b[:])
	}()
	begin := time.Now()
	if err := s.node.Backup(ctx, path); err != nil {
		s.log.Warn("backup", "err", err)
		fmt.Fprintf(conn, "error %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		cancel()
		<-gone
		return
	}
	s.log.Info("backup: ready to be fetched", "took", time.Since(begin))
	fmt.Fprintf(conn, "ready %s\n", path)
	<-gone
	s.log.Info("backup: fetched", "took", time.Since(begin))
}

// ErrNotRunning: no server has the data directory open.
var ErrNotRunning = errors.New("no server runs on this data directory")

// Backup asks the server whose data is in dir for a backup and returns where it
// is. It is there until release is called. The error is ErrNotRunning, or the
// server's answer.
func Backup(ctx context.Context, dir string) (path string, release func() error, err error) {
	var conn net.Conn
	err = inDir(dir, func(short string) (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", short)
		return err
	})
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := fmt.Fprintln(conn, "backup"); err != nil {
		return "", nil, errors.Join(err, conn.Close())
	}
	line, err := readLine(bufio.NewReaderSize(conn, maxLine))
	if err != nil {
		return "", nil, errors.Join(ctx.Err(), fmt.Errorf("the server ended the connection: %w", err), conn.Close())
	}
	if path, ok := strings.CutPrefix(line, "ready "); ok {
		return path, conn.Close, nil
	}
	return "", nil, errors.Join(errors.New("the server says: "+strings.TrimPrefix(line, "error ")), conn.Close())
}

// readLine reads one line of bounded length.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(line)), nil
}

// maxSocketPath is what the system allows for the path of a socket.
const maxSocketPath = 100

// inDir calls f with a path of the socket that is short enough.
func inDir(dir string, f func(path string) error) error {
	if path := filepath.Join(dir, socketName); len(path) <= maxSocketPath {
		return f(path)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName))
}
