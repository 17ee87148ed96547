//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// fleetWatch records what happens to the Nodes of a fleet and to their pods. A later comparison of states would miss
// short disturbances.
type fleetWatch struct {
	end  func()
	lock sync.Mutex
	seen []string
}

func (f *oldFleet) watch() *fleetWatch {
	f.t.Helper()
	kube, err := kubernetes.NewForConfig(f.Target.Config())
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(kube, 0)
	w := &fleetWatch{end: func() { cancel(); factory.Shutdown() }}
	f.t.Cleanup(w.end)
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandlerFuncs{
		factory.Core().V1().Nodes().Informer(): {
			AddFunc:    func(now any) { w.node(f, now.(*corev1.Node)) },
			UpdateFunc: func(_, now any) { w.node(f, now.(*corev1.Node)) },
			DeleteFunc: func(last any) { w.record("Node %s was deleted", keyOf(last)) },
		},
		factory.Core().V1().Pods().Informer(): {
			UpdateFunc: func(_, now any) { w.pod(f, now.(*corev1.Pod)) },
			DeleteFunc: func(last any) {
				if pod, known := last.(*corev1.Pod); !known || pod.Labels["app"] != f.workload.Name {
					w.record("Pod %s was deleted", keyOf(last))
				}
			},
		},
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			f.t.Fatal(err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return w
}

func keyOf(object any) string {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return err.Error()
	}
	return key
}

func (w *fleetWatch) disturbances() []string {
	w.end()
	w.lock.Lock()
	defer w.lock.Unlock()
	return slices.Clone(w.seen)
}

func (w *fleetWatch) record(format string, args ...any) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.seen = append(w.seen, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *fleetWatch) node(f *oldFleet, node *corev1.Node) {
	if was, known := f.before.nodes[node.Name]; known {
		if disturbance := disturbanceOf(&was, node); disturbance != "" {
			w.record("Node %s %s", node.Name, disturbance)
		}
	}
}

func (w *fleetWatch) pod(f *oldFleet, pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil && pod.Labels["app"] != f.workload.Name {
		w.record("Pod %s/%s is being deleted", pod.Namespace, pod.Name)
	}
}

func disturbanceOf(was, is *corev1.Node) string {
	added := slices.DeleteFunc(slices.Clone(is.Spec.Taints), func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectPreferNoSchedule ||
			slices.ContainsFunc(was.Spec.Taints, func(o corev1.Taint) bool { return o.MatchTaint(&t) })
	})
	ready := slices.ContainsFunc(is.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	switch {
	case is.UID != was.UID:
		return fmt.Sprintf("has the UID %s, before it had %s", is.UID, was.UID)
	case is.DeletionTimestamp != nil:
		return "is being deleted"
	case is.Status.NodeInfo.BootID != was.Status.NodeInfo.BootID:
		return "was rebooted"
	case !ready:
		return "is not Ready"
	case is.Spec.Unschedulable:
		return "is unschedulable"
	case len(added) > 0:
		return fmt.Sprintf("has the taints %v", added)
	}
	return ""
}
