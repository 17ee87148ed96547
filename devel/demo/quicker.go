package demo

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/internal/platform/reachability"
)

// Whose setting it is.
const (
	ofManager     = "the manager"
	ofProcesses   = "manager and provider"
	ofControllers = "kube-controller-manager"
	ofKubelets    = "the kubelets"
)

// quicker is a setting that makes a story shorter. What holds where nobody sets it is reported, so that nobody takes
// the times of a story for those of an installation.
type quicker struct {
	of, name, value, usual string
}

// quickOutage has an outage noticed, and machines judged, within seconds.
func quickOutage() []quicker {
	return []quicker{
		{ofProcesses, "apiserver-check-period", "1s", usually(reachability.DefaultPeriod)},
		{ofProcesses, "apiserver-check-timeout", "3s", usually(reachability.DefaultTimeout)},
		{ofManager, "health-timeout", storyTimeout.String(), usually(healthcheck.DefaultTimeout)},
	}
}

// quickNodes has Kubernetes notice within ten seconds that a node is silent.
func quickNodes() []quicker {
	return []quicker{
		{ofControllers, "node-monitor-grace-period", "10s", "50s"},
		{ofControllers, "node-monitor-period", "1s", "5s"},
		{ofKubelets, "nodeLeaseDurationSeconds", "8", "40"},
		{ofKubelets, "nodeStatusUpdateFrequency", "2s", "10s"},
	}
}

// arrange sets it where it is a flag.
func (q quicker) arrange(o *stack.Options) {
	flag := "--" + q.name + "=" + q.value
	switch q.of {
	case ofManager:
		o.ManagerArgs = append(o.ManagerArgs, flag)
	case ofProcesses:
		o.ManagerArgs, o.ProviderArgs = append(o.ManagerArgs, flag), append(o.ProviderArgs, flag)
	case ofControllers:
		o.ExtraControllerManagerArgs = append(o.ExtraControllerManagerArgs, flag)
	}
}

// configureKubelets adds to the kubelets' configuration in user data what is for them.
func configureKubelets(userData *corev1.Secret, all []quicker) {
	const kind = "kind: KubeletConfiguration"
	before, after, _ := strings.Cut(userData.StringData[v1beta1.DefaultUserDataKey], kind)
	indent := before[strings.LastIndex(before, "\n"):]
	added := ""
	for _, q := range all {
		if q.of == ofKubelets {
			added += indent + q.name + ": " + q.value
		}
	}
	userData.StringData[v1beta1.DefaultUserDataKey] = before + kind + added + after
}

// explain says what is quicker than usual.
func explain(screen *screen, all []quicker) {
	if len(all) == 0 {
		return
	}
	var text strings.Builder
	text.WriteString("To be short, this story runs with other times than an installation has by default:")
	for _, q := range all {
		dashes := "--"
		if q.of == ofKubelets {
			dashes = ""
		}
		fmt.Fprintf(&text, "\n   %s: %s%s=%s (by default %s)", q.of, dashes, q.name, q.value, q.usual)
	}
	screen.Printf("%s", text.String())
}

// usually writes a default as people do.
func usually(d time.Duration) string { return duration.HumanDuration(d) }
