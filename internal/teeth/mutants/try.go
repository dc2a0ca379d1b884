package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// limit bounds one run of one test; a test that hangs because its rule is
// broken has to bound its waits itself.
const limit = 3 * time.Minute

// Some tests find the break by chance: half of the hash seeds show it, say. So
// one may run against the broken rule tries times, but no longer than
// patience if that makes three, until it fails.
const (
	tries    = 30
	patience = time.Minute
)

// try runs one line of the table, and says what is wrong ("": caught) with the
// output of the run that shows it.
func try(ctx context.Context, bin string, m mutant) (verdict, log string) {
	itself, err := pullsItself(m)
	if err != nil {
		return err.Error(), ""
	}
	passed, log := runTest(ctx, bin, m, nil)
	if itself {
		// It looked at both sides, and passes only if it saw the violation.
		switch {
		case !passed:
			return "missed", log
		case !strings.Contains(log, wrongWay(m)):
			return "the test never came upon the break", log
		}
		return "", log
	}
	if !passed {
		return "fails with the rule in force", log
	}
	if strings.Contains(log, "teeth: the wrong way") {
		return "the test pulls rules itself: its file wants the build tag teeth", log
	}
	for from, i := time.Now(), 0; i < tries && (i < 3 || time.Since(from) < patience); i++ {
		passed, log = runTest(ctx, bin, m, []string{"TEETH_PULL=" + m.rule.String()})
		if !strings.Contains(log, wrongWay(m)) {
			return "the test never came upon the break", log
		}
		if strings.Contains(log, "panic: test timed out") {
			return "hangs", log
		}
		if !passed {
			return "", log
		}
	}
	return "missed", log
}

// wrongWay is what the rule's first break prints.
func wrongWay(m mutant) string { return "teeth: the wrong way: " + m.rule.String() + "\n" }

// runTest reports whether the test ran and passed. A panic that the break
// brings about is a failure like others; one for want of time is not. How the
// program ended after the test says nothing of the rule (its search for
// goroutines that are left is for whole packages).
func runTest(ctx context.Context, bin string, m mutant, env []string) (passed bool, log string) {
	out, _ := command(ctx, m.dir, env, bin, "-test.run", "^"+m.name+"$", "-test.v", "-test.timeout", limit.String())
	log = string(out)
	return strings.Contains(log, "--- PASS: "+m.name+" "), log
}

// command runs a program in a directory and returns what it said.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd.CombinedOutput()
}

// pullsItself reports whether the test stands in a file with the build tag
// teeth. The test must be there.
func pullsItself(m mutant) (bool, error) {
	return pullsItselfIn(m.dir, m.name)
}

func pullsItselfIn(dir, name string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return false, err
	}
	fn := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(t \*testing\.T\)`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		if fn.Match(data) {
			return strings.HasPrefix(string(data), "//go:build teeth\n"), nil
		}
	}
	return false, fmt.Errorf("%s has no %s", dir, name)
}

// tail returns the last n lines of a text, indented.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-n):], "\n    ")
}
