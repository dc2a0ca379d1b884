package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// TestClusterQuestion: a question is read as it was written, and what is none is refused.
func TestClusterQuestion(t *testing.T) {
	want := ClusterQuestion{Do: "replace", Nodes: []ClusterNode{{ID: "n5", Weight: 2, Zone: "east", Store: strings.Repeat("1", 32)}}, Old: "n1", Dry: true}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseClusterQuestion(text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "tasks", "a field more": `{"do":"tasks","x":1}`, "something behind it": `{"do":"tasks"}{}`,
		"a list": `[]`, "half of it": `{"do":"ta`, "too long": `{"do":"` + strings.Repeat("x", MaxClusterQuestion) + `"}`, "a steering field": "{\"\x1b[2J\":1}",
	} {
		if _, err := ParseClusterQuestion([]byte(text)); !errors.Is(err, ErrRange) || strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestClusterQuestionChanges: what only asks may go unanswered without a doubt.
func TestClusterQuestionChanges(t *testing.T) {
	for text, want := range map[string]bool{
		`{"do":"tasks"}`: false, `{"do":"join?"}`: false, `{"do":"add","dry":true}`: false, `{"do":"cancel","dry":true}`: false,
		`{"do":"add"}`: true, `{"do":"remove"}`: true, `{"do":"replicas"}`: true, `{"do":"cancel"}`: true, `{"do":"pause"}`: true, `{"do":"resume"}`: true,
		`{"do":"what there is not yet"}`: true, `no question`: true, ``: true,
	} {
		if got := AdminCluster.Changes([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// FuzzClusterQuestion: whatever comes, the parser ends, and what it takes means the same when it is written and read again.
func FuzzClusterQuestion(f *testing.F) {
	for _, text := range []string{`{"do":"tasks"}`, `{"do":"add","nodes":[{"id":"n4","weight":1,"zone":"z","store":"00"}],"dry":true}`, `{"do":"cancel","task":18446744073709551615}`, `{}`, `[`, ``} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := ParseClusterQuestion(b)
		if err != nil {
			if !errors.Is(err, ErrRange) {
				t.Error(err)
			}
			return
		}
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseClusterQuestion(text)
		if len(text) > MaxClusterQuestion {
			return // escapes have made it longer
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if b2, _ := json.Marshal(again); !bytes.Equal(b2, text) {
			t.Errorf("%s becomes %s", text, b2)
		}
	})
}
