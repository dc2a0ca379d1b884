package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// limit bounds one run of one test; a test that hangs because its rule is
// broken has to bound its waits itself.
const limit = 3 * time.Minute

// Some tests find the break by chance: half of the hash seeds show it, for
// example. So such a test runs against the broken rule until it fails, at most
// tries times; after three runs it also stops when patience is over.
const (
	tries    = 30
	patience = time.Minute
)

// These are verdicts of try that are not a failure of a run.
const (
	caught   = "caught"
	asBefore = "caught (as before)"
)

// A bench builds programs and runs their tests. It is safe for concurrent use.
type bench struct {
	tree  *tree
	tmp   string
	cache *cache

	// together holds the patches that are tried on a joint program, by directory and
	// whether it has the points.
	together map[string][]*patch

	mu sync.Mutex
	// unbroken holds what is known of the program as it is, by directory and
	// whether it has the points, and joint the joint programs.
	unbroken map[string]*unbroken
	joint    map[string]*joint
	builds   int
}

// newBench makes a bench for lines of the table. Programs are made below tmp.
func newBench(t *tree, tmp string, c *cache, lines []line) (*bench, error) {
	b := &bench{tree: t, tmp: tmp, cache: c, together: map[string][]*patch{}, unbroken: map[string]*unbroken{}, joint: map[string]*joint{}}
	for _, l := range lines {
		points, err := l.points(t)
		if err != nil {
			return nil, err
		}
		// A slow test makes programs of its own, which have no mutant but one.
		if key := place(l.test.dir, points); !l.test.slow && !slices.Contains(b.together[key], l.patch) {
			b.together[key] = append(b.together[key], l.patch)
		}
	}
	return b, nil
}

// place names a program: its directory, and whether it has the points.
func place(dir string, points bool) string { return fmt.Sprint(dir, points) }

// A joint is the test binary of a joint program. While the environment names no mutant it is
// the program as it is, so that no other binary has to be built to see a test pass.
type joint struct {
	unbroken
	in map[string]bool // the patches that are in it
}

// jointOf returns the joint program that a line is tried on, nil if it has to have
// one of its own.
func (b *bench) jointOf(ctx context.Context, l line, points bool) *joint {
	key := place(l.test.dir, points)
	patches := b.together[key]
	if l.test.slow {
		return nil
	}
	b.mu.Lock()
	if b.joint[key] == nil {
		b.joint[key] = &joint{unbroken: unbroken{passed: map[string]*verdict{}}}
	}
	j := b.joint[key]
	b.mu.Unlock()
	j.once.Do(func() {
		dir, err := os.MkdirTemp(b.tmp, "overlay")
		if err == nil {
			j.overlay, j.in, err = b.tree.jointOverlay(dir, points, patches)
		}
		if err == nil {
			j.bin, err = b.build(ctx, l.test.dir, j.overlay, tags(points))
		}
		if j.err = err; err != nil && ctx.Err() == nil {
			fmt.Printf("  %s: its mutants do not build together, so each is built alone: %v\n", l.test.dir, err)
		}
	})
	if j.err != nil || !j.in[l.patch.name] {
		return nil
	}
	return j
}

// An unbroken is a test binary of the program as it is.
type unbroken struct {
	once    sync.Once
	bin     string
	overlay string
	sum     [sha256.Size]byte
	err     error

	mu     sync.Mutex
	passed map[string]*verdict
}

// A verdict on one test of the program as it is.
type verdict struct {
	once   sync.Once
	result result
	log    string
}

// asItIs returns the binary of the program as it is.
func (b *bench) asItIs(ctx context.Context, dir string, points bool) *unbroken {
	key := place(dir, points)
	b.mu.Lock()
	if b.unbroken[key] == nil {
		b.unbroken[key] = &unbroken{passed: map[string]*verdict{}}
	}
	u := b.unbroken[key]
	b.mu.Unlock()
	u.once.Do(func() {
		if points {
			if u.overlay, u.err = b.overlay(true); u.err != nil {
				return
			}
		}
		u.bin, u.err = b.build(ctx, dir, u.overlay, tags(points))
		if u.err == nil {
			u.sum, u.err = sum(u.bin)
		}
	})
	return u
}

// run runs a test of the program as it is, once.
func (u *unbroken) run(ctx context.Context, b *bench, t test, points bool) (result, string) {
	u.mu.Lock()
	v := u.passed[t.name]
	if v == nil {
		v = &verdict{}
		u.passed[t.name] = v
	}
	u.mu.Unlock()
	v.once.Do(func() { v.result, v.log = b.runTest(ctx, u.bin, t, u.overlay, points) })
	return v.result, v.log
}

// try says what is wrong with a line ("caught" if nothing is), with the output
// of the run that shows it.
func (b *bench) try(ctx context.Context, l line) (says, log string) {
	points, err := l.points(b.tree)
	if err != nil {
		return err.Error(), ""
	}
	key, err := b.cache.key(ctx, l, points)
	if err != nil {
		return err.Error(), ""
	}
	if b.cache.has(key) {
		return asBefore, ""
	}
	var u *unbroken
	var bin, overlay string
	var env []string
	if j := b.jointOf(ctx, l, points); j != nil {
		u, bin, overlay, env = &j.unbroken, j.bin, j.overlay, []string{mutantVar + "=" + l.patch.name}
	} else if u = b.asItIs(ctx, l.test.dir, points); u.err != nil {
		return u.err.Error(), ""
	}
	if r, log := u.run(ctx, b, l.test, points); r != passes {
		return fmt.Sprintf("%v with the rule in force", r), log
	}
	if bin == "" {
		if overlay, err = b.overlay(points, l.patch); err != nil {
			return err.Error(), ""
		}
		defer os.RemoveAll(filepath.Dir(overlay))
		if bin, err = b.build(ctx, l.test.dir, overlay, tags(points)); err != nil {
			return "does not build", err.Error()
		}
		defer os.Remove(bin)
		if s, err := sum(bin); err != nil {
			return err.Error(), ""
		} else if s == u.sum {
			return "the program is the same with the patch", ""
		}
	}
	for from, i := time.Now(), 0; i < tries && (i < 3 || time.Since(from) < patience); i++ {
		var r result
		r, log = b.runTest(ctx, bin, l.test, overlay, points, env...)
		switch r {
		case fails:
			if err := b.cache.add(key); err != nil {
				return err.Error(), log
			}
			return caught, log
		case passes:
		default:
			return r.String(), log
		}
	}
	return "missed", log
}

// overlay writes an overlay into a directory of its own.
func (b *bench) overlay(points bool, patches ...*patch) (string, error) {
	dir, err := os.MkdirTemp(b.tmp, "overlay")
	if err != nil {
		return "", err
	}
	return b.tree.overlay(dir, points, patches...)
}

// tags are the build tags of a test binary.
func tags(points bool) string {
	if points {
		return "points"
	}
	return ""
}

// build builds the test binary of a directory, and returns its path.
func (b *bench) build(ctx context.Context, dir, overlay, tags string) (string, error) {
	b.mu.Lock()
	b.builds++
	bin := filepath.Join(b.tmp, fmt.Sprintf("%s-%d.test", strings.ReplaceAll(dir, "/", "-"), b.builds))
	b.mu.Unlock()
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-tags=" + tags, "-o", bin}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	out, err := command(ctx, b.tree.root, nil, "go", append(args, "./"+dir)...)
	if err != nil {
		return "", fmt.Errorf("%s does not build: %w\n%s", dir, err, out)
	}
	return bin, nil
}

// sum tells binaries apart.
func sum(path string) (s [sha256.Size]byte, err error) {
	data, err := os.ReadFile(path)
	return sha256.Sum256(data), err
}

// A result of one run of one test.
type result string

const (
	passes  result = "passes"
	fails   result = "fails"
	hangs   result = "hangs"
	skipped result = "is skipped"
	unclear result = "ends without a verdict"
)

func (r result) String() string { return string(r) }

// judge reads the output of a test. A panic that the break causes is a failure
// like others; one because the time was over is not. How the program ended after
// the test says nothing about the rule (its search for goroutines that are left
// is for whole packages).
func judge(name, log string) result {
	said := func(what string) bool { return strings.Contains("\n"+log, "\n--- "+what+": "+name+" (") }
	switch {
	case strings.Contains(log, "panic: test timed out"):
		return hangs
	case said("FAIL"):
		return fails
	case said("PASS"):
		return passes
	case said("SKIP"):
		return skipped
	case strings.Contains(log, "panic: ") || strings.Contains(log, "fatal error: "):
		return fails
	}
	return unclear
}

// runTest runs one test of a binary. What the test builds itself is built with
// the overlay too.
func (b *bench) runTest(ctx context.Context, bin string, t test, overlay string, points bool, env ...string) (result, string) {
	if overlay != "" {
		env = append(env, goflags(overlay, points))
	}
	out, _ := command(ctx, filepath.Join(b.tree.root, t.dir), env, bin, "-test.run", "^"+t.name+"$", "-test.v", "-test.timeout", limit.String())
	return judge(t.name, string(out)), string(out)
}

// goflags is the environment variable by which go commands use an overlay.
func goflags(overlay string, points bool) string {
	flags := "GOFLAGS=" + os.Getenv("GOFLAGS") + " -overlay=" + overlay
	if points {
		flags += " -tags=points"
	}
	return flags
}

// command runs a program in a directory and returns what it said.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PWD="+dir), env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd.CombinedOutput()
}

// tail returns the last n lines of a text, indented.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-n):], "\n    ")
}
