package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Watch records what happens to Nodes and to their pods. A later comparison of states would miss short disturbances.
type Watch struct {
	before map[string]corev1.Node
	mayEnd string
	end    func()
	lock   sync.Mutex
	seen   []string
}

// StartWatch watches a cluster until the test ends or Disturbances is called. before contains the Nodes by name.
// Pods whose label app is mayEnd may be deleted.
func StartWatch(t *testing.T, config *rest.Config, before map[string]corev1.Node, mayEnd string) *Watch {
	t.Helper()
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(kube, 0)
	w := &Watch{before: before, mayEnd: mayEnd, end: func() { cancel(); factory.Shutdown() }}
	t.Cleanup(w.end)
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandlerFuncs{
		factory.Core().V1().Nodes().Informer(): {
			AddFunc:    func(now any) { w.node(now.(*corev1.Node)) },
			UpdateFunc: func(_, now any) { w.node(now.(*corev1.Node)) },
			DeleteFunc: func(last any) { w.record("Node %s was deleted", keyOf(last)) },
		},
		factory.Core().V1().Pods().Informer(): {
			UpdateFunc: func(_, now any) { w.pod(now.(*corev1.Pod)) },
			DeleteFunc: func(last any) {
				if pod, known := last.(*corev1.Pod); !known || pod.Labels["app"] != w.mayEnd {
					w.record("Pod %s was deleted", keyOf(last))
				}
			},
		},
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			t.Fatal(err)
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

// Disturbances ends the watch and returns what has happened.
func (w *Watch) Disturbances() []string {
	w.end()
	w.lock.Lock()
	defer w.lock.Unlock()
	return slices.Clone(w.seen)
}

func (w *Watch) record(format string, args ...any) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.seen = append(w.seen, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *Watch) node(node *corev1.Node) {
	if was, known := w.before[node.Name]; known {
		if disturbance := Disturbance(&was, node); disturbance != "" {
			w.record("Node %s %s", node.Name, disturbance)
		}
	}
}

func (w *Watch) pod(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil && pod.Labels["app"] != w.mayEnd {
		w.record("Pod %s/%s is being deleted", pod.Namespace, pod.Name)
	}
}

// Disturbance returns what has happened to a Node that must stay the same and be ready for pods, or "".
func Disturbance(was, is *corev1.Node) string {
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
