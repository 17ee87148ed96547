package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/simcloud"
)

// BenchmarkJoin measures the time until all nodes are Ready, and then the memory per instance.
func BenchmarkJoin(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			c := startCluster(b)
			token, _ := c.token(b)
			data := c.userDataWith(token, c.cp.CA(), 20) // longer Leases, because the control plane marks silent nodes soon
			for round := 0; b.Loop(); round++ {
				b.StopTimer()
				p := startProcess(b)
				// Most writes of joining kubelets are Events. The benchmark does not measure them.
				omit := simcloud.SettingsPatch{Host: &simcloud.HostSettingsPatch{OmitEvents: ptr.To(true)}}
				if _, err := p.admin.PatchSettings(b.Context(), omit); err != nil {
					b.Fatal(err)
				}
				empty := residentKiB(b, p.process.PID())
				prefix := fmt.Sprintf("bench-%d-%d-", n, round)
				b.StartTimer()
				var last *simcloud.Instance
				for i := range n {
					last = p.create(prefix+strconv.Itoa(i), data)
				}
				p.wantConsole(last.ID, "registered node") // avoids polling the API server during the join
				eventually(b, func() error {
					if ready := c.readyNodes(b, prefix); ready < n {
						return fmt.Errorf("%d of %d nodes are ready", ready, n)
					}
					return nil
				})
				b.StopTimer()
				b.ReportMetric(float64(residentKiB(b, p.process.PID())-empty)/float64(n), "KiB/instance")
				p.stop(syscall.SIGTERM)
				c.deleteAll(b)
				b.StartTimer()
			}
		})
	}
}

func (c *cluster) readyNodes(b *testing.B, prefix string) (ready int) {
	b.Helper()
	list, err := c.kube.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		b.Fatal(err)
	}
	for _, node := range list.Items {
		if strings.HasPrefix(node.Name, prefix) && readiness(&node) == corev1.ConditionTrue {
			ready++
		}
	}
	return ready
}

func residentKiB(b *testing.B, pid int) int {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return kib
		}
	}
	b.Fatal("/proc has no VmRSS for the process")
	return 0
}
