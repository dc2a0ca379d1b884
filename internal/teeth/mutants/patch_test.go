package main

import (
	"errors"
	"strings"
	"testing"
)

const sample = `says: A sum covers both.
broken: the sum leaves one out
on: points
test: store TestSum
test: test/sim TestFindsSum found by the simulation; slow

diff --git a/a.go b/a.go
index 1..2
--- a/a.go
+++ b/a.go
@@ -3,2 +3,2 @@ func sum
 
-	return a + b
+	return a
@@
 	last()
+	more()

--- a/b/c.go
+++ b/b/c.go
@@
-x
`

func TestParse(t *testing.T) {
	p, err := parse("sum-covers-both", sample)
	if err != nil {
		t.Fatal(err)
	}
	if p.says != "A sum covers both." || p.broken != "the sum leaves one out" || !p.points {
		t.Errorf("head: %+v", p)
	}
	want := []test{{dir: "store", name: "TestSum"}, {"test/sim", "TestFindsSum", "found by the simulation", true}}
	if len(p.tests) != 2 || p.tests[0] != want[0] || p.tests[1] != want[1] {
		t.Errorf("tests: %+v", p.tests)
	}
	if len(p.files) != 2 || p.files[0].path != "a.go" || len(p.files[0].hunks) != 2 || p.files[1].path != "b/c.go" {
		t.Fatalf("files: %+v", p.files)
	}
	text := map[string]string{"a.go": "one\n\n\treturn a + b\n\tlast()\nend\n", "b/c.go": "x\ny\n"}
	got, err := p.apply(nil, func(path string) (string, error) { return text[path], nil })
	if err != nil {
		t.Fatal(err)
	}
	if got["a.go"] != "one\n\n\treturn a\n\tlast()\n\tmore()\nend\n" || got["b/c.go"] != "y\n" {
		t.Errorf("%q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	const head, diff = "says: A.\n", "\n--- a/a\n+++ b/a\n@@\n-x\n+y\n"
	for _, c := range []struct{ text, says string }{
		{head, "no diff"},
		{"says A\n" + diff, `x:1: a head is lines of "key: value"`},
		{"sings: A\n" + diff, `x:1: no key "sings"`},
		{"on: fire\n" + diff, `x:1: a patch can be on: points`},
		{"test: store\n" + diff, `x:1: want test: DIRECTORY NAME`},
		{head + strings.Replace(diff, "+++ b/a", "+++ b/b", 1), "x:3: a patch changes files"},
		{head + strings.ReplaceAll(diff, "/a", "/../a"), `x:3: "../a" is no path`},
		{head + strings.Replace(diff, "+y", "+x", 1), "x:5: a hunk needs lines"},
		{head + strings.Replace(diff, "-x\n", "", 1), "x:5: a hunk needs lines"},
		{head + strings.Replace(diff, "@@\n-x\n+y\n", "", 1), "x: no hunk for a"},
		{head + diff + "\\ No newline at end of file\n", "x:8: no line of a diff"},
	} {
		if _, err := parse("x", c.text); err == nil || !strings.HasPrefix(err.Error(), c.says) && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %s", c.text, err, c.says)
		}
	}
}

// A hunk goes to the one place where its old lines stand, or nowhere.
func TestApplyOnce(t *testing.T) {
	read := func(text string) func(string) (string, error) {
		return func(string) (string, error) { return text, nil }
	}
	const head = "says: A.\n\n--- a/a\n+++ b/a\n"
	for _, c := range []struct{ hunks, text, want, says string }{
		{"@@\n-x\n+y\n", "w\nx\n", "w\ny\n", ""},
		{"@@\n-x\n+y\n", "x\nx\n", "", "x: a: the lines of the hunk in line 5 stand there 2 times"},
		{"@@\n-x\n+y\n", "xx\n x\n", "", "x: a: the lines of the hunk in line 5 stand there 0 times"},
		{"@@\n-x\n+y\n@@\n-a\n+x\n", "a\nx\n", "x\ny\n", ""}, // in any order, and not in what another wrote
		{"@@\n-a\n-x\n+y\n@@\n-x\n+z\n", "a\nx\n", "", "x: a: the hunk in line 9 overlaps another"},
		{"@@\n-x\n+z\n@@\n-x\n+y\n", "x\n", "", "x: a: the hunk in line 8 is there twice"},
	} {
		p, err := parse("x", head+c.hunks)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.apply(nil, read(c.text))
		switch {
		case c.says != "":
			if err == nil || err.Error() != c.says {
				t.Errorf("%q in %q: %v, want %s", c.hunks, c.text, err, c.says)
			}
		case err != nil || got["a"] != c.want:
			t.Errorf("%q in %q: %q, %v", c.hunks, c.text, got, err)
		}
	}
	gone := errors.New("gone")
	p, err := parse("x", head+"@@\n-x\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.apply(nil, func(string) (string, error) { return "", gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
}

func TestJudge(t *testing.T) {
	for log, want := range map[string]result{
		"=== RUN   TestX\n--- PASS: TestX (0.00s)\nPASS\n":                     passes,
		"--- FAIL: TestX (1.00s)\n    --- FAIL: TestX/a (0s)\n":                fails,
		"--- PASS: TestX (0.00s)\nPASS\ngoleak: found\n":                       passes,
		"--- SKIP: TestX (0.00s)\n":                                            skipped,
		"panic: nil map\n\ngoroutine 7":                                        fails,
		"fatal error: all goroutines are asleep - deadlock!\n":                 fails,
		"panic: test timed out after 3m0s\n\trunning tests:\n\t\tTestX (3m)\n": hangs,
		"testing: warning: no tests to run\nPASS\n":                            unclear,
		"--- PASS: TestXY (0.00s)\n":                                           unclear,
	} {
		if got := judge("TestX", log); got != want {
			t.Errorf("%q: %s, want %s", log, got, want)
		}
	}
}
