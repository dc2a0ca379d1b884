package document

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wholefile"
)

// A Content is a document at one moment. It is immutable, and its methods may be called from several goroutines.
type Content interface {
	// Encode returns what Config.Load reads, of at most MaxContent bytes, which nobody changes afterwards. How many they are must be
	// alike at all replicas, because an entry after which they would be more is refused.
	Encode() []byte
	// Apply returns the content behind an entry, and what Do answers. It is pure: the same content and the same entry give the same at
	// every replica, at any time. If they did not, replicas would differ. Entry and answer may be kept by the content and by the caller.
	//
	// An entry that it cannot take, because it is malformed or asks for what cannot be, leaves the content as it is, and
	// the answer says why. next nil: this program does not know the entry, and one that does would apply it. The replica is fenced, with
	// an error of the answer's text, because it would part from the others.
	Apply(entry []byte) (next Content, answer []byte)
}

// An Engine is what a document needs of the replicas' engine; see consensus.Engine.
type Engine interface {
	Create(g consensus.GroupID, id consensus.ReplicaID, s consensus.State) error
	Start(ctx context.Context, g consensus.GroupID, id consensus.ReplicaID, m consensus.Machine) error
	Propose(g consensus.GroupID, term uint64, data []byte) error
	Barrier(ctx context.Context, g consensus.GroupID) error
	Trim(g consensus.GroupID, upTo uint64) error
	Status(g consensus.GroupID) (consensus.Status, error)
	Stop(g consensus.GroupID, forget bool) error
}

// Config is what a Replica is made of.
type Config struct {
	Group   consensus.GroupID
	Replica consensus.ReplicaID
	Engine  Engine
	FS      vfs.FS // default: the machine's
	Dir     string // exists
	File    string // the file's name in Dir. NAME.new and NAME.received are the replica's, too
	// Load makes a content of what Encode has returned, here or at another replica, whose program may be older or newer. It
	// takes any bytes, and keeps them if it likes.
	Load func([]byte) (Content, error)
	// Changed is told of each content that takes the place of another one, when Content returns it, and before Do answers. The replica's
	// applier calls it: it must not block. Default: nobody is told.
	Changed func(Content)
	// Led is told that this replica was elected in a term, and that it leads no more; the latter may be told again and again, with the newest term that the replica
	// knows of. What Content returns when it has just been elected may lack what earlier leaders have acknowledged; what Read returns does not.
	// It must not block, and its caller may be anybody who calls the engine. Default: nobody is told.
	Led    func(leads bool, term uint64)
	Pause  time.Duration // between an entry and the write of the file that has it; default 100 ms
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Changed == nil {
		c.Changed = func(Content) {}
	}
	if c.Led == nil {
		c.Led = func(bool, uint64) {}
	}
	if c.Pause == 0 {
		c.Pause = 100 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("group", c.Group)
	return c
}

// Errors beside those of package consensus and of the file.
var (
	// ErrNoFile: there is no file, so there is nothing to start with.
	ErrNoFile = errors.New("document: the file is not there")
	// ErrContent: this program cannot take a content or an entry that others take.
	ErrContent = errors.New("document: a content of another program")
	// ErrFull: the entry was applied, and has changed nothing, because the content would have more than MaxContent bytes.
	ErrFull = errors.New("document: the content would be too large")
)

// A Replica is a node's replica of a document. It lives once: who has stopped it opens another one. Its methods are safe for
// concurrent use. Neither Config.Changed nor Config.Led may call Create, Start or Stop.
type Replica struct {
	c       Config
	now     atomic.Pointer[version]         // published
	durable atomic.Pointer[consensus.State] // what the file has
	dirty   chan struct{}                   // capacity 1: the file is older than what is published
	ended   chan struct{}                   // closed when the replica is stopped
	kept    sync.WaitGroup                  // the goroutine that writes the file
	waiting waiting

	receiving atomic.Bool           // a snapshot has NAME.received
	disk      sync.Mutex            // held while the file is written, and what it has taken down
	failed    atomic.Pointer[error] // of the last write of the file; nil: it is written

	life life
}

// A life is where a replica stands between Open and the end of Stop. Its lock is held while the engine creates, starts or stops the replica.
type life struct {
	sync.Mutex
	created bool // there is a file
	started bool
	stopped bool
	noLog   bool // the engine has no log of it, or not the one that the file belongs to
}

// A version is the document behind an entry. It is immutable.
type version struct {
	state   consensus.State
	content Content // nil: nothing has come yet
	bytes   []byte  // of the content
}

// Open reads the file, if there is one. No other process, and no other Replica, may have it open.
//
// Errors: ErrDamaged, ErrNewer, ErrOther, ErrContent with that of Config.Load; those of the file system.
func Open(c Config) (*Replica, error) {
	r := &Replica{c: c.withDefaults(), dirty: make(chan struct{}, 1), ended: make(chan struct{})}
	r.waiting.init()
	v := &version{}
	path := r.path()
	b, err := wholefile.Read(r.c.FS, path, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("document: %w", err)
	default:
		var f file
		if f, err = parseFile(b); err == nil && (f.group != c.Group || f.replica != c.Replica) {
			err = fmt.Errorf("%w: it is replica %d of group %d, and this was to be replica %d of group %d", ErrOther, f.replica, f.group, c.Replica, c.Group)
		}
		if err == nil {
			v, err = r.load(&f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w; if no older copy of the whole directory is at hand, remove this replica from its group and add another one", path, err)
		}
		r.life.created = true
	}
	r.now.Store(v)
	r.durable.Store(&v.state)
	return r, nil
}

// load makes a version of a file. ErrContent, with that of Config.Load.
func (r *Replica) load(f *file) (*version, error) {
	if f.state.Applied == 0 {
		return &version{}, nil
	}
	content, err := r.c.Load(f.content)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrContent, err)
	}
	v := &version{f.state, content, content.Encode()}
	if len(v.bytes) > MaxContent {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d", ErrContent, len(v.bytes), MaxContent)
	}
	return v, nil
}

func (r *Replica) path() string { return r.c.FS.PathJoin(r.c.Dir, r.c.File) }

// file returns the bytes of a file that has a version.
func (r *Replica) file(v *version) []byte {
	return appendFile(nil, &file{r.c.Group, r.c.Replica, v.state, v.bytes})
}

// Create makes a replica that never was: its log, and then its file. A founder is given what the group starts from: the same state and the
// same content at each of them. One that gets its state from the others is given a zero State and nil. Both are durable when it returns nil. Where there is a
// file already it does nothing, and it may be called again after any error or crash.
//
// Errors: consensus.ErrConfig; the engine's, if the log has been in use, because its file was lost then; ErrFull; that of the file system.
func (r *Replica) Create(state consensus.State, first Content) error {
	r.life.Lock()
	defer r.life.Unlock()
	if r.life.stopped {
		return fmt.Errorf("document: create: %w", consensus.ErrClosed)
	}
	if r.life.created {
		return nil
	}
	v := &version{state: state, content: first}
	if state.Applied == 0 {
		v = &version{}
	} else {
		if first == nil {
			return errors.New("document: a group that starts from a state starts from a content, and none was given")
		}
		if v.bytes = first.Encode(); len(v.bytes) > MaxContent {
			return fmt.Errorf("%w: it has %d bytes, at most %d", ErrFull, len(v.bytes), MaxContent)
		}
		f := file{state: state}
		if err := errors.Join(state.Config.Check(), f.check(v.bytes)); err != nil {
			return fmt.Errorf("document: what the group is to start from: %w", err)
		}
	}
	if err := r.c.Engine.Create(r.c.Group, r.c.Replica, v.state); err != nil {
		return fmt.Errorf("document: create: %w", err)
	}
	r.disk.Lock()
	defer r.disk.Unlock()
	if err := wholefile.Replace(r.c.FS, r.c.Dir, r.c.File, r.file(v)); err != nil {
		return fmt.Errorf("document: the file cannot be made durable: %w", err)
	}
	r.now.Store(v)
	r.durable.Store(&v.state)
	r.life.created = true
	return nil
}

// Start has the replica take part in its group. After an error it may be called again.
//
// Errors: ErrNoFile; consensus.ErrNoLog: this replica must never start, see the package's text; the engine's.
func (r *Replica) Start(ctx context.Context) error {
	r.life.Lock()
	defer r.life.Unlock()
	switch {
	case r.life.stopped:
		return fmt.Errorf("document: start: %w", consensus.ErrClosed)
	case r.life.started:
		return errors.New("document: the replica was started already")
	case !r.life.created:
		return fmt.Errorf("%w: %s: create it, if this replica never was; if it was, remove it from its group and add another one", ErrNoFile, r.path())
	}
	err := r.c.Engine.Start(ctx, r.c.Group, r.c.Replica, &machine{r})
	if errors.Is(err, consensus.ErrNoLog) {
		r.life.noLog = true
		return fmt.Errorf("document: %s has entries up to %d, but its log does not fit: %w: stop and forget this replica, remove it from its group and add another one", r.path(), r.durable.Load().Applied, err)
	}
	if err != nil {
		return fmt.Errorf("document: start: %w", err)
	}
	r.life.started, r.life.noLog = true, false
	r.kept.Go(r.keep)
	return nil
}

// Stop ends the replica: calls of Do that wait are told consensus.ErrUnknown, and the file has what was published, if the disk takes it. forget: the
// replica is given up for good, its log first and then its file, so that a crash in between leaves a file without a log, which cannot
// start. Whoever finds that (Start says consensus.ErrNoLog) calls it again. So does who was told an error of the file system. Of a
// replica that does not run the log cannot be dropped: it is opened, started and forgotten.
//
// Errors: the engine's, if the log was not dropped: then the file stays; that of the file system.
func (r *Replica) Stop(forget bool) error {
	r.life.Lock()
	defer r.life.Unlock()
	err := r.end(forget)
	if !forget || err != nil {
		return err
	}
	r.disk.Lock()
	defer r.disk.Unlock()
	if err := RemoveFile(r.c.FS, r.c.Dir, r.c.File); err != nil {
		return err
	}
	r.life.created = false
	return nil
}

// RemoveFile removes what is left of a replica that is given up, once the log has nothing of it, without reading it: a damaged file goes, too. No Replica may have it open. It may be
// called again after an error.
//
// Errors: those of the file system.
func RemoveFile(fs vfs.FS, dir, file string) error {
	for _, name := range [...]string{file + freshSuffix, file + receivedSuffix, file} { // the file last: what names the replica goes when nothing else is left
		if err := wholefile.Remove(fs, dir, name); err != nil {
			return fmt.Errorf("document: the file of a replica that was forgotten cannot be removed: %w", err)
		}
	}
	return nil
}

// end stops what runs, once. nil with forget: there is no log of the replica. Caller holds the lock of life.
func (r *Replica) end(forget bool) (err error) {
	ran := r.life.started && !r.life.stopped
	if ran { // else the engine may run another replica of the group by now
		err = r.c.Engine.Stop(r.c.Group, forget)
		r.life.noLog = forget && err == nil
	}
	if !r.life.stopped {
		r.life.stopped = true
		close(r.ended)
		r.kept.Wait()
	}
	switch {
	case r.life.noLog:
		return nil
	case err == nil && forget:
		return fmt.Errorf("document: stop: the log of a replica that does not run cannot be dropped: open it, start it and forget it: %w", consensus.ErrClosed)
	case ran:
		if failed := r.save(); failed != nil {
			r.c.Logger.Warn("the last state of a document is not in its file, the next start takes it from the log", "file", r.path(), "err", failed)
		}
	}
	if err == nil || !forget && (errors.Is(err, consensus.ErrNoGroup) || errors.Is(err, consensus.ErrClosed)) {
		return nil
	}
	return fmt.Errorf("document: stop: %w", err)
}

// Content returns the document as it is published here, which may be older than what the leader has; nil: nothing has come yet. It does not wait.
func (r *Replica) Content() Content { return r.now.Load().content }

// State returns up to where the document is published here. It does not wait.
func (r *Replica) State() consensus.State { return r.now.Load().state }

// A Status is what a replica knows of itself, at one moment.
type Status struct {
	consensus.Status
	Saved   uint64 // the file has the entries up to it
	Bytes   int    // of the content
	Waiting int    // calls of Do that wait
	Failed  error  // why the file could not be written the last time; nil: it could
}

// Status tells of the replica. Errors: the engine's, if it does not run the replica; what this package knows is told all the same.
func (r *Replica) Status() (Status, error) {
	s := Status{Saved: r.durable.Load().Applied, Bytes: len(r.now.Load().bytes), Waiting: r.waiting.len()}
	if err := r.failed.Load(); err != nil {
		s.Failed = *err
	}
	var err error
	s.Status, err = r.c.Engine.Status(r.c.Group)
	return s, err
}
