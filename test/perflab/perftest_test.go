package perflab

import (
	"errors"
	"testing"
)

const latOutput = `Conflicting CPU frequency values detected: 1200.000000 != 2000.000000. CPU Frequency is not max.
---------------------------------------------------------------------------------------
                    RDMA_Read Latency Test
 Dual-port       : OFF		Device         : rxe0
 GID index       : 1
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x001f PSN 0x824474 OUT 0x80 RKey 0x002c78 VAddr 0x00555a4f419000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:77:00:01
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 64      500          40.78          5577.08      78.90    	       145.05      	481.31 		4352.84 		5577.08
---------------------------------------------------------------------------------------
`

const nanOutput = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 64      500          15.77          113169.86      17.80    	       1175.10     	-nan   		48043.03 		113169.86
`

const bwOutput = ` #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 32         2000             1.46               0.16   		   0.005101
 64         2000             2.92               0.32   		   0.005201
---------------------------------------------------------------------------------------
`

func TestParsePerftest(t *testing.T) {
	for _, c := range []struct {
		out, name string
		want      float64
		columns   int
	}{
		{latOutput, "t_typical[usec]", 78.90, 9},
		{latOutput, "t_min[usec]", 40.78, 9},
		{latOutput, "99% percentile[usec]", 4352.84, 9},
		{latOutput, "99.9% percentile[usec]", 5577.08, 9},
		{latOutput, "#iterations", 500, 9},
		{nanOutput, "t_typical[usec]", 17.80, 9},
		{bwOutput, "MsgRate[Mpps]", 0.005201, 5},
		{bwOutput, "BW average[MB/sec]", 0.32, 5},
		{bwOutput, "#bytes", 64, 5},
	} {
		row, err := parsePerftest([]byte(c.out))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := row[c.name]; !ok || got != c.want || len(row) != c.columns {
			t.Errorf("%s is %v (%v), want %v; columns: %v", c.name, got, ok, c.want, row)
		}
	}
	for _, out := range []string{"", "Couldn't connect to 10.77.0.1:18515\n", " #bytes #iterations t_min[usec]\n", " #bytes #iterations t_min[usec]\n 64 nan-ish x\n"} {
		if row, err := parsePerftest([]byte(out)); !errors.Is(err, errNoTable) {
			t.Errorf("%q: %v, %v", out, row, err)
		}
	}
}
