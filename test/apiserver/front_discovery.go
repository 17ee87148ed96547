package apiserver

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

var allVerbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

func (f *Front) discover(path string) (any, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path = strings.Trim(path, "/")
	switch {
	case path == "version":
		return version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"}, true
	case path == "api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}, true
	case path == "apis":
		return f.groups(), true
	}
	parts := strings.Split(path, "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return f.resources(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return f.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return nil, false
}

func (f *Front) groups() metav1.APIGroupList {
	all := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	seen := map[schema.GroupVersion]bool{}
	for _, k := range f.server.registry.kinds {
		gv := k.gvk.GroupVersion()
		if gv.Group == "" || seen[gv] || !f.serves(k) {
			continue
		}
		seen[gv] = true
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		found := false
		for i := range all.Groups {
			if all.Groups[i].Name == gv.Group {
				all.Groups[i].Versions, found = append(all.Groups[i].Versions, v), true
			}
		}
		if !found {
			all.Groups = append(all.Groups, metav1.APIGroup{Name: gv.Group,
				Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		}
	}
	return all
}

func (f *Front) resources(gv schema.GroupVersion) (any, bool) {
	all := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: gv.String()}
	for _, k := range f.server.registry.kinds {
		if k.gvk.GroupVersion() != gv || !f.serves(k) {
			continue
		}
		resource := metav1.APIResource{Name: k.plural, SingularName: strings.ToLower(k.gvk.Kind), Namespaced: k.namespaced,
			Kind: k.gvk.Kind, Verbs: allVerbs}
		all.APIResources = append(all.APIResources, resource)
		for _, sub := range []string{"status", "approval"} {
			if k.strategy.hasSubresource(sub) {
				resource.Name, resource.Verbs = k.plural+"/"+sub, metav1.Verbs{"get", "patch", "update"}
				all.APIResources = append(all.APIResources, resource)
			}
		}
		if k.strategy.hasScale() {
			all.APIResources = append(all.APIResources, metav1.APIResource{Name: k.plural + "/scale", Group: "autoscaling",
				Version: "v1", Kind: "Scale", Namespaced: k.namespaced, Verbs: metav1.Verbs{"get", "patch", "update"}})
		}
	}
	return all, len(all.APIResources) > 0
}
