package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// requestTimeout is the timeout of one request. A request that takes longer is canceled and sent again.
const requestTimeout = 10 * time.Second

const clusterRoleBindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"

// setUp waits for the objects that the API server and kube-controller-manager create in the background. It also binds
// the roles that kubeadm binds.
func (cp *ControlPlane) setUp(ctx context.Context) error {
	expected := []string{
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node-bootstrapper",
		"/api/v1/namespaces/default",
		"/api/v1/namespaces/kube-system",
		"/api/v1/namespaces/kube-public",
		"/api/v1/namespaces/kube-node-lease",
	}
	if cp.options.WithControllerManager {
		// Pods are refused until their service account exists.
		expected = append(expected,
			"/api/v1/namespaces/default/serviceaccounts/default",
			"/api/v1/namespaces/kube-system/serviceaccounts/default",
		)
	}
	for _, path := range expected {
		err := cp.apiServer.Await(ctx, func(ctx context.Context) error { return cp.get(ctx, cp.Endpoint()+path) })
		if err != nil {
			return err
		}
	}
	for _, binding := range nodeBindings(cp.options.ApproveNodeClientCSRs) {
		err := cp.apiServer.Await(ctx, func(ctx context.Context) error {
			return cp.create(ctx, cp.Endpoint()+clusterRoleBindings, binding)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// KubeadmTokens is the group of the bootstrap tokens that kubeadm creates. Only these tokens may request certificates,
// unless a test binds other groups.
const KubeadmTokens = "system:bootstrappers:kubeadm:default-node-token"

// nodeBindings returns the role bindings of a cluster of kubeadm: only bootstrap tokens of kubeadm may request client
// certificates for nodes. If approve is set, kube-controller-manager approves the requests of all bootstrap tokens.
func nodeBindings(approve bool) []*rbacv1.ClusterRoleBinding {
	bindings := []*rbacv1.ClusterRoleBinding{
		bindGroup("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", KubeadmTokens),
	}
	if approve {
		const approver = "system:certificates.k8s.io:certificatesigningrequests:"
		bindings = append(bindings,
			bindGroup("kubelet-client-approval", approver+"nodeclient", "system:bootstrappers"),
			bindGroup("kubelet-client-renewal-approval", approver+"selfnodeclient", "system:nodes"),
		)
	}
	return bindings
}

func bindGroup(name, role, group string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}
}

// get returns an error unless the response to a GET of the URL has the status 200.
func (cp *ControlPlane) get(ctx context.Context, url string) error {
	return cp.do(ctx, http.MethodGet, url, nil, http.StatusOK)
}

// create creates an object. An existing object is no error, because an earlier request may have created it and failed
// afterwards.
func (cp *ControlPlane) create(ctx context.Context, url string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode %T: %w", object, err)
	}
	return cp.do(ctx, http.MethodPost, url, body, http.StatusCreated, http.StatusConflict)
}

func (cp *ControlPlane) do(ctx context.Context, method, url string, body []byte, wanted ...int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("create request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := cp.http.Do(request)
	if err != nil {
		return err // The error already contains the method and the URL.
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 8<<10))
	if err != nil {
		return fmt.Errorf("%s %s: read answer: %w", method, url, err)
	}
	for _, status := range wanted {
		if response.StatusCode == status {
			return nil
		}
	}
	return fmt.Errorf("%s %s: %s: %s", method, url, response.Status, strings.TrimSpace(string(answer)))
}
