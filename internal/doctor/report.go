package doctor

import (
	"fmt"
	"strings"
	"unicode"
)

// A Level says how a step came out.
type Level string

// These are the levels. Skip: it could not be examined, because of what failed
// before or because it does not concern this machine.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
	Skip Level = "skip"
)

// A Step is one thing that was examined.
type Step struct {
	Name    string `json:"step"`
	Subject string `json:"subject,omitempty"` // device, address, file
	Level   Level  `json:"level"`
	Code    string `json:"code,omitempty"` // of a warning or failure
	Text    string `json:"text"`
	Do      string `json:"do,omitempty"` // what helps
}

// A Report is the result of an examination.
type Report struct {
	Role     string `json:"role"` // node or client
	Good     bool   `json:"ok"`   // nothing failed
	Failed   int    `json:"failed"`
	Warnings int    `json:"warnings"`
	First    string `json:"first_failure,omitempty"` // code of it
	Steps    []Step `json:"steps"`
}

// Add appends steps and counts them.
func (r *Report) Add(steps ...Step) {
	for _, s := range steps {
		r.Steps = append(r.Steps, s)
		switch s.Level {
		case Warn:
			r.Warnings++
		case Fail:
			if r.Failed++; r.Failed == 1 {
				r.First = s.Code
			}
		}
	}
	r.Good = r.Failed == 0
}

// Text is the report for people: a line for each step, what helps below those
// that are not ok, and the sum at the end, where it is seen.
func (r *Report) Text() string {
	var b strings.Builder
	for _, s := range r.Steps {
		level := string(s.Level)
		if s.Level == Fail {
			level = "FAIL"
		}
		what := s.Name
		if s.Subject != "" {
			what += " " + s.Subject
		}
		text := s.Text
		if s.Code != "" {
			text = s.Code + ": " + text
		}
		fmt.Fprintf(&b, "%-4s  %s: %s\n", level, what, OneLine(text))
		if s.Do != "" {
			fmt.Fprintf(&b, "      -> %s\n", OneLine(s.Do))
		}
	}
	b.WriteByte('\n')
	switch {
	case r.Failed > 0:
		for _, s := range r.Steps {
			if s.Level == Fail {
				fmt.Fprintf(&b, "%d failed, %d warnings; begin with %s (%s)\n", r.Failed, r.Warnings, strings.TrimSpace(s.Name+" "+s.Subject), s.Code)
				break
			}
		}
	case r.Warnings > 0:
		fmt.Fprintf(&b, "nothing failed, %d warnings\n", r.Warnings)
	default:
		b.WriteString("nothing failed\n")
	}
	return b.String()
}

// OneLine keeps foreign text (an error, a file, another node's answer) from
// breaking the form of an output, and a terminal from obeying it.
func OneLine(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n', c == '\t':
			return ' '
		case !unicode.IsPrint(c): // control characters, and those that turn the direction of a line
			return '?'
		}
		return c
	}, strings.TrimSpace(s))
}
