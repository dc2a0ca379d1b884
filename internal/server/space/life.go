package space

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/control"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/store"
)

// How a space serves and ends.

// ErrNotServing: the store is not open.
var ErrNotServing = errors.New("server: not serving")

// A life says whether a space serves, and has what its end waits for.
type life struct {
	Serving  atomic.Bool
	Draining atomic.Bool
	run      context.Context    // ends sessions, janitor, lanes
	stop     context.CancelFunc // ends it
	wg       sync.WaitGroup     // sessions and their set-ups, janitor, loops

	Ending      base.WaitsFor // what the end waits for
	shutdown    sync.Once
	shutdownErr error
}

// Enter counts the set-up of a session in: the end of the space waits until the caller has
// called gone. The session is to be served until run ends. Without ok the space is ending,
// nothing was counted, and gone must not be called.
func (sp *Space) Enter() (run context.Context, gone func(), ok bool) {
	ok = sp.Sessions.Enter(&sp.wg, func() bool { return !sp.Draining.Load() && sp.Serving.Load() })
	return sp.run, sp.wg.Done, ok
}

// Ready reports whether the space serves: it is open, its end has not begun and
// durability holds. It may still be filling its memory; see Filled.
func (sp *Space) Ready() bool {
	return sp.Serving.Load() && !sp.Draining.Load() && sp.Err() == nil
}

// Filled reports whether all keys are in memory again after a start.
func (sp *Space) Filled() bool { return sp.Serving.Load() && sp.Store.Filled() }

// Shutdown ends a space of a node that goes on, or whose end waits for it, as
// Server.Shutdown ends the node.
func (sp *Space) Shutdown(ctx context.Context) error {
	sp.shutdown.Do(func() { sp.shutdownErr = sp.EndWithin(ctx, sp.end) })
	return sp.shutdownErr
}

func (sp *Space) end(ctx context.Context) error {
	if !sp.Serving.Load() {
		return nil
	}
	sp.Log.Info("shutting down")
	sp.Drain(ctx)
	sp.Leave()
	sp.Halt()
	err := sp.Close()
	if sp.Fence.StoreWell() {
		sp.Log.Info("stopped")
	}
	return err
}

// Drain lets no more sessions in and ends those that there are, once their requests are
// answered or ctx ends.
func (sp *Space) Drain(ctx context.Context) {
	sp.Draining.Store(true)
	sp.Sessions.Gate.Unblock() // what waits there is answered: the server is closing
	sp.Handlers.Refuse()
	sp.Ending.Set("requests under way")
	sp.Sessions.Drain(ctx)
	sp.Sessions.Farewell()
	linger, cancel := context.WithTimeout(ctx, sp.Config.Linger)
	defer cancel()
	sp.Sessions.Gone(linger)
	sp.Sessions.Drain(ctx)
	sp.Sessions.End(base.CauseShutdown, nil)
	sp.Sessions.Seal()
}

// Leave waits until all sessions and their requests are gone.
func (sp *Space) Leave() {
	sp.stop()
	sp.Ending.Set("sessions and their requests")
	sp.wg.Wait()
	sp.Ending.Set("")
}

// Halt stops what serves sessions, of which none is left: beat, lanes, workers.
func (sp *Space) Halt() {
	sp.stopBeat()
	<-sp.BeatDone
	sp.Ending.Set("lanes")
	sp.Sessions.WaitLanes()
	sp.Ending.Set("workers")
	sp.closePools()
	sp.Ending.Set("")
}

// Close closes store and rails. Nothing uses them any more. A store that has failed is
// left as it is, with its rails.
func (sp *Space) Close() error {
	if err := sp.Err(); !sp.Fence.StoreWell() {
		// The store may still hold buffers of ours. The process is ending.
		return err
	}
	sp.stopControl()
	sp.Ending.Set("the store")
	defer sp.Ending.Set("")
	// Frees the regions, hence ends remote access, before the clean-stop mark.
	err := sp.Store.Close()
	sp.Ending.Set("devices")
	sp.Staging.Close()
	return errors.Join(err, sp.Rails.Close())
}

// Abandon closes what there is of a space that never served.
func (sp *Space) Abandon() {
	sp.stop()
	sp.stopBeat()
	sp.closePools()
	sp.stopControl()
	if sp.Store != nil {
		sp.Store.Close()
	}
	if sp.Staging != nil {
		sp.Staging.Close()
	}
	_ = sp.Rails.Close()
}

// Err is nil while the space works. Afterwards it says why durability is gone, or why
// the fabric is.
func (sp *Space) Err() error { return sp.Fence.Err() }

// storeFailed is the store's OnFatal, which is called once: the store calls back for
// none of the writes that it has. It comes behind StandDown where the disk fails while
// a node stands down.
func (sp *Space) storeFailed(err error) {
	sp.Fence.LoseStore()
	sp.Fail(err)
}

// Fail fences the space: no beat, no handler, no session. It must not call the store.
func (sp *Space) Fail(err error) { sp.stopServing(sp.Fence.Fail, err) }

// StandDown fences a space whose store is well.
func (sp *Space) StandDown(err error) { sp.stopServing(sp.Fence.StandDown, err) }

func (sp *Space) stopServing(fence func(error) bool, err error) {
	sp.Draining.Store(true)
	if fence(err) {
		sp.Log.Error(base.LogAlways, "fatal: this node stops serving", "err", err)
		sp.stopBeat() // each session ends by itself, see package session
	}
}

// startControl opens the socket through which the node's operator asks for
// backups. A space that cannot have one serves all the same.
func (sp *Space) startControl() {
	if sp.Config.Store.Mode == store.Cache || sp.Config.Store.FS != nil {
		return // no directory that other programs could see
	}
	var err error
	if sp.control, err = control.Serve(sp.Config.Store.Dir, sp.Store, sp.Config.Store.Logger); err != nil {
		sp.Config.Store.Logger.Warn("no backups while this server runs: the control socket cannot be opened", "err", err)
	}
}

// stopControl closes it.
func (sp *Space) stopControl() {
	if sp.control != nil {
		if err := sp.control.Close(); err != nil {
			sp.Config.Store.Logger.Warn("control socket", "err", err)
		}
	}
}
