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

const (
	componentManager           = "the manager"
	componentProcesses         = "the manager and the provider"
	componentControllerManager = "kube-controller-manager"
	componentKubelets          = "the kubelets"
)

// setting is a flag of a component, with a value for the demo that makes a scenario shorter. The demo also prints the
// default value, so that users do not expect such times in their installation.
type setting struct {
	component, name, value, defaultValue string
}

// outageSettings make the processes detect an outage, and the manager mark machines, within seconds.
func outageSettings() []setting {
	return []setting{
		{componentProcesses, "apiserver-check-period", "1s", humanDuration(reachability.DefaultPeriod)},
		{componentProcesses, "apiserver-check-timeout", "3s", humanDuration(reachability.DefaultTimeout)},
		{componentManager, "health-timeout", scenarioTimeout.String(), humanDuration(healthcheck.DefaultTimeout)},
	}
}

// nodeSettings make Kubernetes detect a silent node within ten seconds.
func nodeSettings() []setting {
	return []setting{
		{componentControllerManager, "node-monitor-grace-period", "10s", "50s"},
		{componentControllerManager, "node-monitor-period", "1s", "5s"},
		{componentKubelets, "nodeLeaseDurationSeconds", "8", "40"},
		{componentKubelets, "nodeStatusUpdateFrequency", "2s", "10s"},
	}
}

func (q setting) arrange(o *stack.Options) {
	flag := "--" + q.name + "=" + q.value
	switch q.component {
	case componentManager:
		o.ManagerArgs = append(o.ManagerArgs, flag)
	case componentProcesses:
		o.ManagerArgs, o.ProviderArgs = append(o.ManagerArgs, flag), append(o.ProviderArgs, flag)
	case componentControllerManager:
		o.ExtraControllerManagerArgs = append(o.ExtraControllerManagerArgs, flag)
	}
}

func configureKubelets(userData *corev1.Secret, all []setting) {
	const kind = "kind: KubeletConfiguration"
	before, after, _ := strings.Cut(userData.StringData[v1beta1.DefaultUserDataKey], kind)
	indent := before[strings.LastIndex(before, "\n"):]
	added := ""
	for _, q := range all {
		if q.component == componentKubelets {
			added += indent + q.name + ": " + q.value
		}
	}
	userData.StringData[v1beta1.DefaultUserDataKey] = before + kind + added + after
}

func explain(screen *screen, all []setting) {
	if len(all) == 0 {
		return
	}
	var text strings.Builder
	text.WriteString("To save time, this scenario does not use the defaults of some settings:")
	for _, q := range all {
		dashes := "--"
		if q.component == componentKubelets {
			dashes = ""
		}
		fmt.Fprintf(&text, "\n   %s: %s%s=%s (by default %s)", q.component, dashes, q.name, q.value, q.defaultValue)
	}
	screen.Printf("%s", text.String())
}

func humanDuration(d time.Duration) string { return duration.HumanDuration(d) }
