package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/lab/agent"
	"github.com/rdmakv/rdmakv/lab/ether"
	"github.com/rdmakv/rdmakv/lab/image"
	"github.com/rdmakv/rdmakv/lab/qmp"
)

// A Guest is a running virtual machine. Its methods may be called at the same
// time; after Kill or Close only Close may be called.
type Guest struct {
	// Dir is the directory of the host that is /mnt in the guest.
	Dir string
	// Addr is the guest's address on the virtual Ethernet.
	Addr string

	config  Config
	machine *machine
	monitor *qmp.Monitor
	agent   *agent.Client
	console tail
	boots   *booting
	tempDir string       // to be removed with the guest, or empty
	cable   *net.UDPConn // the other end of a cable that ends nowhere, or nil
	log     *os.File

	closing  sync.Once
	closeErr error
}

// ErrBoot is in the chain of every error of Boot that a guest itself caused.
var ErrBoot = errors.New("the guest did not boot")

// errSilent: a machine of two processors that printed nothing for two minutes was
// seen once, on a busy host. Why, is not known.
var errSilent = errors.New("the guest has printed nothing")

// Boot starts a guest and waits until its RDMA device is ACTIVE and programs
// can be started in it. When ctx ends later, the guest goes on; Close ends it,
// and so does the end of this process.
func Boot(ctx context.Context, c Config) (*Guest, error) {
	c, err := c.filled()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	from := time.Now()
	img, err := c.image(ctx)
	if err != nil {
		return nil, err
	}
	g := &Guest{config: c, Addr: fmt.Sprintf("10.77.0.%d", c.Number)}
	if g.config.Link == nil {
		if g.config.Link, g.cable, err = ether.Cable(); err != nil {
			return nil, err
		}
		defer g.config.Link.Close() // QEMU has its own by then; the other end stays, unread
	}
	if c.Dir == "" {
		if g.tempDir, err = os.MkdirTemp("", "lab-"+c.Name+"-"); err != nil {
			return nil, err
		}
		g.config.Dir = g.tempDir
	}
	if g.Dir, err = filepath.Abs(g.config.Dir); err != nil {
		return nil, err
	}
	g.config.Dir = g.Dir
	if c.Log != "" {
		if g.log, err = os.Create(c.Log); err != nil {
			return nil, errors.Join(err, g.Close())
		}
	}
	for {
		if err = g.boot(ctx, img); !errors.Is(err, errSilent) || ctx.Err() != nil {
			break
		}
		if err = g.machine.kill(); err != nil {
			break
		}
		<-g.boots.ended
		c.Progress(fmt.Sprintf("%s: nothing was printed for %v; it is started anew", c.Name, c.Silence))
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	c.Progress(fmt.Sprintf("%s: up after %.1f s", c.Name, time.Since(from).Seconds()))
	return g, nil
}

// boot starts the machine and waits for its word.
func (g *Guest) boot(ctx context.Context, img image.Image) (err error) {
	c := g.config
	c.Progress(fmt.Sprintf("%s: booting Linux %s, %d CPUs, %d MiB", c.Name, img.Release, c.CPUs, c.Memory))
	if g.machine, err = start(c, img); err != nil {
		return err
	}
	b := &booting{ready: make(chan struct{}), failed: make(chan string, 1), heard: make(chan struct{}, 1), ended: make(chan struct{})}
	g.boots = b
	go g.readConsole(g.machine.console, b)
	if g.monitor, err = qmp.New(g.machine.monitor); err != nil {
		// An option that QEMU does not know ends it with a message.
		return fmt.Errorf("%w: %w\n%s", ErrBoot, err, g.machine.stderr.lines(20))
	}
	if err := g.await(ctx, b); err != nil {
		return err
	}
	g.agent = agent.NewClient(g.machine.serial)
	if code, err := g.agent.Run(ctx, agent.Cmd{Args: []string{"/bin/true"}}, nil, nil); err != nil || code != 0 {
		return fmt.Errorf("%w: its agent does not answer: code %d, %v\n%s", ErrBoot, code, err, g.tail())
	}
	return nil
}

// booting is what the console of a machine says while it boots.
type booting struct {
	ready  chan struct{} // closed when the guest has said so
	failed chan string   // the reason, when the guest says that it has failed
	heard  chan struct{} // a word for lines that came
	ended  chan struct{} // closed when the console is read no more
}

// hear notes that a line came.
func (b *booting) hear() {
	select {
	case b.heard <- struct{}{}:
	default:
	}
}

// fail notes why the guest is of no use; the first reason counts.
func (b *booting) fail(why string) {
	select {
	case b.failed <- why:
	default:
	}
}

// await waits until a guest has said that it is ready.
func (g *Guest) await(ctx context.Context, b *booting) error {
	silence := time.NewTimer(g.config.Silence)
	defer silence.Stop()
	for {
		select {
		case <-b.heard:
			silence.Reset(g.config.Silence)
			continue
		case <-b.ready:
		case what := <-b.failed:
			return fmt.Errorf("%w: %s\n%s", ErrBoot, what, g.tail())
		case <-g.machine.ended:
			return fmt.Errorf("%w: the machine ended (%v)\n%s", ErrBoot, g.machine.err, g.tail())
		case <-silence.C:
			g.keep("lab: nothing was printed for " + g.config.Silence.String() + "; " + g.stands())
			return fmt.Errorf("%w: %w", ErrBoot, errSilent)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w\n%s%s", ErrBoot, ctx.Err(), g.stands(), g.tail())
		}
		select {
		case what := <-b.failed: // before it said that it is ready
			return fmt.Errorf("%w: %s\n%s", ErrBoot, what, g.tail())
		default:
			return nil
		}
	}
}

// keep keeps lines of the console, or about it.
func (g *Guest) keep(lines string) {
	_, _ = g.console.Write([]byte(lines))
	if g.log != nil {
		_, _ = g.log.WriteString(lines) // a full disk shall not stop the guest
	}
}

// stands is where the processors of a guest that does not boot are: addresses
// for the kernel's System.map (its kernel is not moved, "nokaslr"). A guest that
// has said nothing yet has nothing else to go by.
func (g *Guest) stands() string {
	registers, err := g.monitor.Human("info registers -a")
	if err != nil {
		return fmt.Sprintf("no answer of QEMU: %v\n", err)
	}
	var s strings.Builder
	for line := range strings.Lines(registers) {
		if strings.HasPrefix(line, "RIP=") || strings.HasPrefix(line, "RSP=") || strings.HasPrefix(line, "CPU#") {
			s.WriteString(line)
		}
	}
	return "its processors stand at:\n" + strings.ReplaceAll(s.String(), "\r", "")
}

// tail is the end of everything that may say why.
func (g *Guest) tail() string {
	s := g.machine.stderr.lines(20)
	if s != "" {
		s = "QEMU says:\n" + s + "\n"
	}
	return s + "the end of the console:\n" + g.console.lines(25)
}

// readConsole keeps the end of the console and looks for lines of init.sh.
func (g *Guest) readConsole(console io.Reader, b *booting) {
	defer close(b.ended)
	r := bufio.NewReaderSize(console, 4096)
	var clock clockCheck
	for {
		line, err := r.ReadString('\n')
		g.keep(line)
		b.hear()
		if word, ok := strings.CutPrefix(strings.TrimSpace(line), "lab: "); ok {
			if word == "ready" {
				close(b.ready)
			} else if what, ok := strings.CutPrefix(word, "FAILED: "); ok {
				b.fail(what)
			} else if seconds, ok := strings.CutPrefix(word, "clock "); ok {
				// The clock of a guest that counts is not the host's.
				if err := clock.line(seconds, time.Now()); err != nil && !g.config.Count {
					b.fail(err.Error())
				}
			} else {
				g.config.Progress(g.config.Name + ": " + word)
			}
		}
		if err != nil {
			return
		}
	}
}

// Agent starts programs in the guest.
func (g *Guest) Agent() *agent.Client { return g.agent }

// Run runs a program in the guest, with output to the two writers as it comes,
// and returns its exit code. When ctx ends the program is killed.
func (g *Guest) Run(ctx context.Context, out, errOut io.Writer, args ...string) (code int, err error) {
	code, err = g.agent.Run(ctx, agent.Cmd{Args: args}, out, errOut)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w\n%s", g.config.Name, err, g.tail())
	}
	return code, err
}

// Output runs a program and returns its standard output; any exit code but 0
// is an error with the end of standard error.
func (g *Guest) Output(ctx context.Context, args ...string) (string, error) {
	var out strings.Builder
	var errs tail
	code, err := g.Run(ctx, &out, &errs, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: %s: exit code %d: %s", g.config.Name, strings.Join(args, " "), code, errs.lines(10))
	}
	return out.String(), err
}

// Pause stops the guest's processors: it vanishes silently.
func (g *Guest) Pause() error { return g.monitor.Do("stop", nil) }

// Continue lets a paused guest go on where it was.
func (g *Guest) Continue() error { return g.monitor.Do("cont", nil) }

// SetLink plugs the network cable in or out: the guest sees it.
func (g *Guest) SetLink(up bool) error {
	return g.monitor.Do("set_link", map[string]any{"name": "nic0", "up": up})
}

// Pid is the number of the emulator's process.
func (g *Guest) Pid() int { return g.machine.cmd.Process.Pid }

// Done is closed when the machine has ended.
func (g *Guest) Done() <-chan struct{} { return g.machine.ended }

// Kill cuts the power: what the guest had not written to its disk is lost.
func (g *Guest) Kill() error { return g.machine.kill() }

// grace is how long a guest may take to power off.
const grace = 5 * time.Second

// Close ends the guest and removes what Boot made for it. It may be called more
// than once and at any time.
func (g *Guest) Close() error {
	g.closing.Do(func() {
		var errs []error
		if g.machine != nil {
			// A guest powers off when its agent loses the host. One that is
			// paused or has failed does not, so it is not waited for long.
			if g.agent != nil {
				g.agent.Close()
				ctx, cancel := context.WithTimeout(context.Background(), grace)
				_ = g.machine.wait(ctx)
				cancel()
			}
			errs = append(errs, g.machine.kill())
		}
		if g.cable != nil {
			g.cable.Close()
		}
		if g.log != nil {
			errs = append(errs, g.log.Close())
		}
		if g.tempDir != "" {
			errs = append(errs, os.RemoveAll(g.tempDir))
		}
		g.closeErr = errors.Join(errs...)
	})
	return g.closeErr
}
