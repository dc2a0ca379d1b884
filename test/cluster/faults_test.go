package cluster

import "testing"

// TestFaults does to a cluster under load what happens to clusters: docs/failures.md
// has the table of what is expected.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills nodes for minutes: make cluster-test")
	}
	parallel(t)
	d := newDrill(newWorld(t).born())
	d.kill9()
	d.killSoonBack(2)
	d.pause()
	d.shortPauses()
	d.linkCut()
	d.oneWayCuts()
	d.newKeys()
	d.rollingRestart()
	d.allKilled()
	d.end()
}
