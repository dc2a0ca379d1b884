package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/agent"
)

// A suite is one test binary to run in a guest.
type suite struct {
	pkg   string // path within the module, as rdma/verbs
	flags []string
	race  bool // compiled with the race detector
}

// testCommand compiles test binaries here and runs them in one guest, each in
// the directory of its package as go test would.
func testCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	c := lab.Config{}
	guestFlags(fs, &c, 2048)
	list := fs.String("list", "lab/tests.list", "file with packages and flags, used when no package is given")
	all := fs.Bool("all", false, "the long list of that file")
	limit := fs.Duration("timeout", 55*time.Minute, "for everything, compiling and booting included")
	race := fs.Bool("race", false, "with the race detector")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("not finished after %v (-timeout)", *limit))
	defer cancel()
	root, err := lab.Root()
	if err != nil {
		return 1, err
	}
	// The whole repository is shared: tests find their testdata.
	c.Dir = root
	if c.Huge == 0 {
		c.Huge = 96
	}
	lines := [][]string{fs.Args()}
	if fs.NArg() == 0 {
		data, err := os.ReadFile(filepath.Join(root, *list))
		if err != nil {
			return 1, err
		}
		short, long, err := readLists(data)
		if err != nil {
			return 1, fmt.Errorf("%s: %w", *list, err)
		}
		if lines = short; *all {
			lines = long
		}
	}
	if *race {
		for i := range lines {
			lines[i] = append([]string{"-race"}, lines[i]...)
		}
	}
	suites, g, err := compileAndBoot(ctx, root, lines, c)
	if g != nil {
		defer g.Close()
	}
	if err != nil {
		return 1, because(ctx, err)
	}
	if slices.ContainsFunc(suites, func(s suite) bool { return slices.Contains(s.flags, lab.Staged) }) {
		if err := g.Stage(ctx, "bin/kvserver", "bin/kvclient"); err != nil {
			return 1, fmt.Errorf("%w (make build makes them)", because(ctx, err))
		}
	}
	failed := 0
	for _, s := range suites {
		ok, err := s.run(ctx, g, root)
		if err != nil {
			return 1, fmt.Errorf("%s: %w", s.name(), because(ctx, err))
		}
		if !ok {
			failed++
		}
	}
	if failed > 0 {
		return 1, fmt.Errorf("%d of %d test binaries failed in the guest", failed, len(suites))
	}
	fmt.Printf("all %d test binaries passed in the guest\n", len(suites))
	return 0, nil
}

// compileAndBoot does both at the same time. The guest may be there although
// something has failed.
func compileAndBoot(ctx context.Context, root string, lines [][]string, c lab.Config) (suites []suite, g *lab.Guest, err error) {
	booting, cancel := context.WithCancel(ctx)
	defer cancel()
	booted := make(chan error, 1)
	go func() {
		var err error
		g, err = lab.Boot(booting, c)
		booted <- err
	}()
	if suites, err = compile(ctx, root, lines); err != nil {
		cancel()
	}
	if bootErr := <-booted; err == nil {
		err = bootErr
	}
	return suites, g, err
}

// testDir holds the binaries and their whole output, below the repository.
const testDir = ".cache/lab/tests"

// compile makes the binaries of the listed packages that have tests.
func compile(ctx context.Context, root string, lines [][]string) ([]suite, error) {
	if err := os.MkdirAll(filepath.Join(root, testDir), 0o755); err != nil {
		return nil, err
	}
	command := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = root
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, errs.Bytes(), out)
		}
		return out, nil
	}
	module, err := command("list", "-m")
	if err != nil {
		return nil, err
	}
	var suites []suite
	for _, words := range lines {
		race := words[0] == "-race"
		if race {
			words = words[1:]
		}
		if len(words) == 0 {
			return nil, errors.New("-race of which package?")
		}
		out, err := command("list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", words[0])
		if err != nil {
			return nil, err
		}
		for pkg := range strings.Lines(string(out)) {
			pkg = strings.TrimPrefix(strings.TrimSpace(pkg), strings.TrimSpace(string(module))+"/")
			if pkg == "" {
				continue
			}
			s := suite{pkg: pkg, flags: words[1:], race: race}
			// Without tables for a debugger the binary is a third smaller and linked sooner.
			build := []string{"test", "-c", "-ldflags=-s -w", "-o", path.Join(testDir, s.name()+".test"), "./" + pkg}
			if race {
				build = append([]string{"test", "-race"}, build[1:]...)
			}
			if _, err := command(build...); err != nil {
				return nil, err
			}
			suites = append(suites, s)
		}
	}
	if len(suites) == 0 {
		return nil, errors.New("no package has tests")
	}
	return suites, nil
}

func (s suite) name() string {
	name := strings.ReplaceAll(s.pkg, "/", "-")
	if s.race {
		name += "-race"
	}
	return name
}

// run runs a suite in the guest. The log gets all its output; we print what a reader needs
// to see.
func (s suite) run(ctx context.Context, g *lab.Guest, root string) (ok bool, err error) {
	log, err := os.Create(filepath.Join(root, testDir, s.name()+".log"))
	if err != nil {
		return false, err
	}
	defer log.Close()
	binary := path.Join(testDir, s.name()+".test")
	if err := g.Stage(ctx, binary); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, g.Unstage(ctx, binary)) }()
	fmt.Printf("--- in the guest: %s %s\n", s.name(), strings.Join(s.flags, " "))
	flags := append([]string{"-test.v", "-test.timeout=20m", "-test.paniconexit0"}, s.flags...)
	out := &report{log: log, out: os.Stdout}
	from := time.Now()
	code, err := g.Agent().Run(ctx, agent.Cmd{
		Args: append([]string{path.Join(lab.Staged, path.Base(binary))}, flags...),
		Env:  testEnv(".test"),
		Dir:  path.Join("/mnt", s.pkg),
	}, out, out)
	out.end()
	// A pattern that matches nothing would pass for ever.
	ok = code == 0 && err == nil && out.passed+out.skipped > 0
	word := "ok"
	if !ok {
		word = "FAILED"
	}
	fmt.Printf("--- %s %s: %d passed, %d skipped, %d failed, exit code %d, %.1f s (%s)\n",
		word, s.name(), out.passed, out.skipped, out.failed, code, time.Since(from).Seconds(), path.Join(testDir, s.name()+".log"))
	return ok, err
}

// A report writes everything to the log. To the standard output it writes everything but the
// lines that only say that a test runs or has passed.
type report struct {
	log, out                io.Writer
	line                    []byte
	passed, skipped, failed int // top level tests
}

func (r *report) Write(p []byte) (int, error) {
	if _, err := r.log.Write(p); err != nil {
		return 0, err
	}
	r.line = append(r.line, p...)
	for {
		i := bytes.IndexByte(r.line, '\n')
		if i < 0 && len(r.line) < bufio.MaxScanTokenSize {
			return len(p), nil
		}
		if i < 0 {
			i = len(r.line) - 1
		}
		r.print(string(r.line[:i+1]))
		r.line = r.line[i+1:]
	}
}

func (r *report) end() {
	if len(r.line) > 0 {
		r.print(string(r.line) + "\n")
		r.line = nil
	}
}

// print counts the results, and prints a line unless it only says that a test runs
// or has passed.
func (r *report) print(line string) {
	switch {
	case strings.HasPrefix(line, "--- PASS"):
		r.passed++
	case strings.HasPrefix(line, "--- SKIP"):
		r.skipped++
	case strings.HasPrefix(line, "--- FAIL"):
		r.failed++
	}
	if strings.HasPrefix(line, "=== ") || strings.HasPrefix(strings.TrimLeft(line, " "), "--- PASS") {
		return
	}
	fmt.Fprint(r.out, line)
}
