package server

import (
	"context"
	"errors"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// A slowFS is a file system on which syncs of the store's log wait while hold is not nil. A
// segment is known by its directory, because it is opened under the name of a free file.
type slowFS struct {
	vfs.FS
	hold atomic.Pointer[chan struct{}]
}

func (f *slowFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	if err == nil && path.Base(path.Dir(name)) == "log" {
		file = slowFile{file, f}
	}
	return file, err
}

type slowFile struct {
	vfs.File
	fs *slowFS
}

func (f slowFile) Sync() error {
	if c := f.fs.hold.Load(); c != nil {
		<-*c
	}
	return f.File.Sync()
}

// standingDown is a node that stands down for why while its store has a write of a
// session that is over. goOn lets the disk have it.
func standingDown(t *testing.T, why error) (srv *Server, goOn func()) {
	t.Helper()
	fs := &slowFS{FS: vfs.NewMem()}
	cfg := testConfig()
	cfg.FS, cfg.DataDir = fs, "data"
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := dial(t, srv, peerOptions{})
	hold := make(chan struct{})
	fs.hold.Store(&hold)
	p.send(wire.AppendPut(nil, p.id(), wire.Put{Key: []byte("key"), Value: []byte("value")}))
	eventually(t, "the store has the write", func() bool { return srv.main.Store.Stats().Inflight > 0 })
	s := srv.main.Sessions.List()[0]
	srv.standDown(why)
	select {
	case <-s.Closed():
	case <-time.After(time.Minute):
		t.Fatal("the session goes on")
	}
	return srv, func() {
		fs.hold.Store(nil)
		close(hold)
	}
}

// TestStandDownWaitsForWrites: when a node stands down its store is well, and calls
// back for the writes that it has. A session with one stays until then, so that what
// the store calls back into is not closed before.
func TestStandDownWaitsForWrites(t *testing.T) {
	srv, goOn := standingDown(t, errors.New("another process is this node"))
	for range 50 { // no proof that it stays for ever; one that does not wait is gone at once
		if len(srv.main.Sessions.List()) == 0 {
			t.Error("the session is gone, and the store has a write of it")
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	goOn()
	if err := srv.Shutdown(context.Background()); err != nil {
		t.Errorf("it does not close cleanly: %v", err)
	}
	if n := len(srv.main.Sessions.List()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestStoreFailsInStandDown: the store fails while a node that stands down waits for
// its writes, and calls back for none of them. So the node ends without it.
func TestStoreFailsInStandDown(t *testing.T) {
	twin := errors.New("another process is this node")
	srv, goOn := standingDown(t, twin)
	ended := make(chan error, 1)
	go func() { ended <- srv.Shutdown(context.Background()) }()
	srv.main.Fence.LoseStore()
	srv.main.Fail(errors.New("the log is on fire"))
	select {
	case err := <-ended:
		if !errors.Is(err, twin) {
			t.Errorf("Shutdown: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the node does not end")
	}
	goOn() // this store is whole, so it can be closed
	shutdownFenced(t, srv, twin)
}
