package teeth

import (
	"strings"
	"testing"
)

func TestRuleNames(t *testing.T) {
	seen := map[string]bool{}
	for r := Rule(1); r < numRules; r++ {
		s := r.String()
		if !strings.HasPrefix(s, "F") && !strings.HasPrefix(s, "D") || seen[s] {
			t.Errorf("rule %d has the name %q", r, s)
		}
		seen[s] = true
	}
	if got := Rule(200).String(); got != "Rule(200)" {
		t.Errorf("unknown rule: %q", got)
	}
}
