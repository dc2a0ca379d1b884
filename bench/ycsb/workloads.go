package main

import "github.com/magiconair/properties"

// workloads are the properties of YCSB's six workloads: those of the files
// workloads/workloada to workloadf of YCSB itself. go-ycsb has a workloade of its
// own, which scans one key at a time.
var workloads = map[string]map[string]string{
	"a": {"readproportion": "0.5", "updateproportion": "0.5", "requestdistribution": "zipfian"},
	"b": {"readproportion": "0.95", "updateproportion": "0.05", "requestdistribution": "zipfian"},
	"c": {"readproportion": "1", "requestdistribution": "zipfian"},
	"d": {"readproportion": "0.95", "insertproportion": "0.05", "requestdistribution": "latest"},
	"e": {"scanproportion": "0.95", "insertproportion": "0.05", "requestdistribution": "zipfian", "maxscanlength": "100", "scanlengthdistribution": "uniform"},
	"f": {"readproportion": "0.5", "readmodifywriteproportion": "0.5", "requestdistribution": "zipfian"},
}

// defaults hold where neither the workload nor the caller says otherwise. YCSB's
// own proportions are not 0, so those that a workload does not name are set.
var defaults = map[string]string{
	"workload": "core", "recordcount": "1000", "operationcount": "1000", "threadcount": "1", "readallfields": "true",
	"readproportion": "0", "updateproportion": "0", "scanproportion": "0", "insertproportion": "0", "readmodifywriteproportion": "0",
}

// setAll sets properties.
func setAll(p *properties.Properties, values map[string]string) error {
	for name, value := range values {
		if _, _, err := p.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}
