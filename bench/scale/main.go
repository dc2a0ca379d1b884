// Scale measures what rdmakv costs as it grows: with more keys, more sessions of one
// node, more members of a cluster. It writes bench/results/scale.json and the tables of
// docs/scale.md. "make scale" runs it, in about twelve minutes.
//
//	scale -keys 100k,1M -sessions "" -members ""    one part; what was measured of other sizes stays
//	scale -big                                      also 50 M keys: 12 GiB of memory, 20 GiB of disk
//	scale -page                                     measure nothing: write the page from the last results
//
// # How it measures
//
// A server is a kvserver process of its own, with the defaults but for memory_limit and
// sync (off: the load is not what is measured). Resident memory, processor time and file
// descriptors come from /proc, everything else from the server's own counters. Sessions
// are opened by processes of this program ("scale worker"), each with some hundreds of
// clients, each of which has one session. Members are those of package membership, in
// this process, each with sockets of its own on the loopback interface; what they send is
// counted where memberlist hands it to the sockets (counted.go), so encrypted.
//
// What is computed stands in model.go, by the constants of the code; the page shows it
// beside what was measured.
//
// Before it begins, the program looks whether memory, disk and file descriptors suffice
// (need.go), and says what is in the way.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// options are the flags.
type options struct {
	bin  string // directory of kvserver
	dir  string // for the stores
	root string // where docs/ and bench/results/ are written
	page bool

	keys, sessions, members []int

	// How long things last; tests shorten them.
	rest  time.Duration // after a load, until the server is at rest
	turn  time.Duration // of gets, and of idle sessions
	quiet time.Duration // for how long a client keeps its lease after a get
	watch time.Duration // of idle members; 0: one interval of push/pull

	log io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		if err := work(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	err := run(ctx, os.Args[1:], os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// bigKeys is what -big adds.
const bigKeys = 50_000_000

func parse(args []string, log io.Writer) (o options, err error) {
	o = options{rest: 30 * time.Second, turn: 8 * time.Second, quiet: 10 * time.Second, log: log}
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.SetOutput(log)
	keys := f.String("keys", "100k,1M,10M", "how many keys, one store after the other; \"\" leaves this part out")
	sessions := f.String("sessions", "1,100,4000", "how many sessions of one node")
	members := f.String("members", "10,30,100", "how many members of a cluster")
	big := f.Bool("big", false, "also 50 million keys")
	f.StringVar(&o.bin, "bin", "bin", "directory with kvserver")
	f.StringVar(&o.dir, "dir", ".cache/scale", "directory for the stores")
	f.StringVar(&o.root, "out", ".", "directory below which docs/scale.md and bench/results/scale.json are written")
	f.BoolVar(&o.page, "page", false, "measure nothing: write the page from the last results")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil { // servers run in directories of their own
		return o, err
	}
	for _, l := range []struct {
		flag, text string
		to         *[]int
		least      int
		most       int
	}{
		{"-keys", *keys, &o.keys, 1000, 1_000_000_000},
		{"-sessions", *sessions, &o.sessions, 1, maxSessions},
		{"-members", *members, &o.members, 2, maxMembers},
	} {
		if *l.to, err = numbers(l.text, l.least, l.most); err != nil {
			return o, fmt.Errorf("%s: %w", l.flag, err)
		}
	}
	if *big {
		o.keys = append(o.keys, bigKeys)
	}
	return o, nil
}

// numbers reads "100k,1M".
func numbers(text string, least, most int) (list []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		digits, unit := word, 1
		switch word[len(word)-1] {
		case 'k':
			digits, unit = word[:len(word)-1], 1000
		case 'M':
			digits, unit = word[:len(word)-1], 1_000_000
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > most/unit || n*unit < least {
			return nil, fmt.Errorf("%q: want numbers from %d to %d such as 100k or 1M, separated by commas", word, least, most)
		}
		list = append(list, n*unit)
	}
	return list, nil
}

// run is the command.
func run(ctx context.Context, args []string, log io.Writer) error {
	o, err := parse(args, log)
	if err != nil {
		return err
	}
	res, err := readResults(filepath.Join(o.root, resultsFile))
	if err != nil {
		return err
	}
	if o.page {
		return writePage(o.root, res)
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	m, err := thisMachine(o.dir)
	if err == nil {
		err = fits(m, o)
	}
	if err != nil {
		return err
	}
	res.Machine = report.ThisMachine(o.dir)
	if err := measure(ctx, o, res); err != nil {
		return err
	}
	return writePage(o.root, res)
}

// measure runs the parts, and keeps what each of them has found before the next begins.
func measure(ctx context.Context, o options, res *results) error {
	keep := func() error { return writeResults(filepath.Join(o.root, resultsFile), res) }
	for _, part := range []struct {
		sizes []int
		one   func(n int) error
	}{
		{o.members, func(n int) error {
			m, err := measureMembers(ctx, o, n)
			if err == nil {
				res.Members = put(res.Members, m, func(r membersResult) int { return r.Members })
			}
			return err
		}},
		{o.sessions, func(n int) error {
			for _, fabric := range fabrics {
				s, err := measureSessions(ctx, o, fabric, n)
				if err != nil {
					return fmt.Errorf("%s: %w", fabric, err)
				}
				res.Sessions = put(res.Sessions, s, func(r sessionResult) int { return 2*r.Sessions + oneIf(r.Fabric == fabrics[1]) })
			}
			return nil
		}},
		{o.keys, func(n int) error {
			k, err := measureKeys(ctx, o, n)
			if err == nil {
				res.Keys = put(res.Keys, k, func(r keysResult) int { return r.Keys })
			}
			return err
		}},
	} {
		for _, n := range part.sizes {
			if err := part.one(n); err != nil {
				return fmt.Errorf("%d: %w", n, err)
			}
			if err := keep(); err != nil {
				return err
			}
		}
	}
	return nil
}

// fabrics are those that a machine without a card has.
var fabrics = [...]string{"iwarp", "shm"}

// put takes a result into a list in the place of the one of the same size, or where it
// belongs by size.
func put[T any](list []T, r T, size func(T) int) []T {
	at, found := slices.BinarySearchFunc(list, size(r), func(one T, n int) int { return size(one) - n })
	if found {
		list[at] = r
		return list
	}
	return slices.Insert(list, at, r)
}

// say tells of progress.
func (o *options) say(format string, args ...any) {
	fmt.Fprintf(o.log, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
