package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

const podRetry = time.Second

type podSimulator struct {
	*machine
	pods map[types.UID]*pod
	ips  map[string]bool
	// version is the resource version from which to continue the watch. If version is empty, the machine must list its
	// pods before it starts the watch.
	version string
}

func (m *machine) simulatePods(ctx context.Context) {
	p := &podSimulator{machine: m, pods: map[types.UID]*pod{}, ips: map[string]bool{}}
	backoff := newBackoff()
	failing := false
	for ctx.Err() == nil {
		began := m.clock.Now()
		err := p.watchPods(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil || m.clock.Since(began) > callTimeout {
			failing, backoff = false, newBackoff()
		}
		if err != nil && !failing {
			m.printf("kubelet: watch pods: %s", explain(err))
			failing = true
		}
		m.pause(ctx, backoff.Step())
	}
}

// watchPods watches the machine's pods until the watch ends. If the resource version for the watch is unknown, it first
// lists the pods.
func (p *podSimulator) watchPods(ctx context.Context) error {
	pods := p.conn.core.Pods(metav1.NamespaceAll)
	selector := fields.OneTermEqualSelector("spec.nodeName", p.spec.Hostname).String()
	if p.version == "" {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		list, err := pods.List(call, metav1.ListOptions{FieldSelector: selector, ResourceVersion: "0"})
		cancel()
		if err != nil {
			return err
		}
		p.replace(list.Items)
		p.version = list.ResourceVersion
	}
	w, err := pods.Watch(ctx, metav1.ListOptions{
		FieldSelector: selector, ResourceVersion: p.version, AllowWatchBookmarks: true,
		// The timeout is random, as in reflectors, so that the watches of many machines do not end at the same time.
		TimeoutSeconds: ptr.To(300 + rand.Int64N(300)),
	})
	if err != nil {
		p.forgetVersion(err)
		return err
	}
	defer w.Stop()
	timer := p.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if due := p.advanceDue(ctx); !due.IsZero() {
			wait = max(0, due.Sub(p.clock.Now()))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C():
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if err := p.handleEvent(event); err != nil {
				p.forgetVersion(err)
				return err
			}
		}
	}
}

func (m *machine) afterReboot() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rebooted
}

// forgetVersion makes the next watch start with a list after an error, because the resource version may be too old.
func (p *podSimulator) forgetVersion(err error) {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		p.version = ""
	}
}

func (p *podSimulator) handleEvent(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	from, ok := event.Object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("the watch of pods returned a %T", event.Object)
	}
	p.version = from.ResourceVersion
	switch event.Type {
	case watch.Added, watch.Modified:
		p.addOrUpdate(from)
	case watch.Deleted:
		p.forget(from.UID)
	}
	return nil
}

// replace adds and updates the listed pods, and stops the simulation of all pods that are not in the list.
func (p *podSimulator) replace(list []corev1.Pod) {
	listed := map[types.UID]bool{}
	for i := range list {
		listed[list[i].UID] = true
		p.addOrUpdate(&list[i])
	}
	for uid := range p.pods {
		if !listed[uid] {
			p.forget(uid)
		}
	}
}

// addOrUpdate starts or continues the simulation of a pod. addOrUpdate ignores mirrors of static pods.
func (p *podSimulator) addOrUpdate(from *corev1.Pod) {
	if _, mirror := from.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return
	}
	now := p.clock.Now()
	var complaint error
	if known := p.pods[from.UID]; known != nil {
		complaint = known.update(from, now, p.spec.Settings)
		known.retryAt = time.Time{}
	} else {
		var fresh *pod
		fresh, complaint = newPod(from, now, p.spec.Settings)
		if p.afterReboot() {
			fresh.reboot(now)
		}
		p.pods[from.UID] = fresh
		switch {
		case fresh.hostNetwork:
			fresh.ip = p.spec.Address.String()
		case fresh.ip == "":
			fresh.ip = p.takeIP()
		default:
			p.ips[fresh.ip] = true
		}
	}
	if complaint != nil {
		p.printf("kubelet: pod %s/%s: %v", from.Namespace, from.Name, complaint)
	}
}

func (p *podSimulator) forget(uid types.UID) {
	if known := p.pods[uid]; known != nil {
		if !known.hostNetwork {
			delete(p.ips, known.ip)
		}
		delete(p.pods, uid)
	}
}

// takeIP allocates the address of a pod, or returns "" if no address is left.
func (p *podSimulator) takeIP() string {
	net := p.spec.PodNet
	for ip := net.Addr().Next(); net.Contains(ip.Next()); ip = ip.Next() {
		if !p.ips[ip.String()] {
			p.ips[ip.String()] = true
			return ip.String()
		}
	}
	return ""
}

// advanceDue advances all due pods and returns the time at which the next pod is due.
func (p *podSimulator) advanceDue(ctx context.Context) (next time.Time) {
	settings := p.spec.Settings
	for uid, known := range p.pods {
		now := p.clock.Now()
		known.advance(now, settings)
		p.recordPodEvents(known)
		if known.wantsCall() && !known.retryAt.After(now) {
			known.retryAt = time.Time{}
			if err := p.reportPod(ctx, known); apierrors.IsNotFound(err) {
				p.forget(uid)
				continue
			} else if ctx.Err() != nil {
				return time.Time{}
			} else if err != nil {
				// A conflict may mean that a new pod with the same name exists. The watch then reports the deletion of
				// this pod.
				p.printf("kubelet: pod %s/%s: %s", known.namespace, known.name, explain(err))
				known.retryAt = now.Add(podRetry)
			}
		}
		if due := known.dueTime(settings); !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

// reportPod reports the state of a pod, and deletes a terminated pod.
func (p *podSimulator) reportPod(ctx context.Context, known *pod) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pods := p.conn.core.Pods(known.namespace)
	if !known.isReported {
		patch, err := known.patch(p.spec.Address.String())
		if err != nil {
			return err
		}
		if _, err := pods.Patch(ctx, known.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
			"status"); err != nil {
			return fmt.Errorf("update the status: %w", err)
		}
		known.isReported = true
	}
	if !known.terminated || known.deleted {
		return nil
	}
	err := pods.Delete(ctx, known.name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions:      &metav1.Preconditions{UID: &known.uid},
	})
	if err != nil {
		return fmt.Errorf("delete the pod: %w", err)
	}
	known.deleted = true // Finalizers may still keep the pod.
	return nil
}
