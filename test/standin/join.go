package standin

import (
	"encoding/base64"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	joiners = "system:bootstrappers:old-fleet"
	token   = "0ldflt.0123456789abcdef"
)

// UserData returns user data with which an instance of an old system joins a cluster.
func UserData(endpoint string, ca []byte) []byte {
	return fmt.Appendf(nil, `#cloud-config
write_files: [{path: /etc/kubernetes/bootstrap-kubeconfig, content: %q}]
`, BootstrapKubeconfig(endpoint, ca))
}

// BootstrapKubeconfig returns the kubeconfig with which an instance of an old system joins a cluster.
func BootstrapKubeconfig(endpoint string, ca []byte) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: bootstrap
clusters: [{name: target, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: bootstrap, user: {token: %q}}]
contexts: [{name: bootstrap, context: {cluster: target, user: bootstrap}}]
`, endpoint, base64.StdEncoding.EncodeToString(ca), token)
}

// JoinObjects returns the objects that permit instances with the BootstrapKubeconfig to join the cluster.
func JoinObjects() []client.Object {
	id, secret, _ := strings.Cut(token, ".")
	bind := func(name, role string) client.Object {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "old-fleet-" + name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: joiners}}}
	}
	return []client.Object{
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id},
			Type:       corev1.SecretTypeBootstrapToken,
			StringData: map[string]string{"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
				"auth-extra-groups": joiners},
		},
		bind("request", "system:node-bootstrapper"),
		bind("are-approved", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"),
	}
}
