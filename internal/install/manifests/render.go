package manifests

import (
	"fmt"
	"io/fs"
	"maps"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	chartvalues "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/charts"
)

// Release is an installation of a chart.
type Release struct {
	// Name and Namespace are the arguments of `helm install NAME --namespace NAMESPACE`. Both arguments are required.
	Name, Namespace string
	// Values override the values of the chart, as `--values` does. The schema of the chart applies.
	Values map[string]any
	// ManagedBy is the value of the label app.kubernetes.io/managed-by. The default is machinist.
	ManagedBy string
}

// RenderMachinist renders the chart machinist: CRDs, policies, roles and the manager.
func RenderMachinist(r Release) ([]*unstructured.Unstructured, error) {
	return render(charts.Machinist, r)
}

// RenderProvider renders the chart machinist-provider. Set the chart's value provider.name to the provider, such as
// "azure".
func RenderProvider(r Release) ([]*unstructured.Unstructured, error) {
	return render(charts.Provider, r)
}

// AppVersion returns the version of the images that the charts install by default.
func AppVersion() (string, error) {
	c, err := load(charts.Machinist)
	if err != nil {
		return "", err
	}
	return c.Metadata.AppVersion, nil
}

// render returns the objects of a chart in Helm's order of installation. An error about a value contains its path.
func render(name string, r Release) ([]*unstructured.Unstructured, error) {
	c, err := load(name)
	if err != nil {
		return nil, err
	}
	values, err := chartvalues.ToRenderValues(c, r.Values, common.ReleaseOptions{
		Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true,
	}, common.DefaultCapabilities)
	if err != nil {
		return nil, fmt.Errorf("check the values of the chart %s: %w", name, err)
	}
	if r.ManagedBy == "" {
		r.ManagedBy = "machinist"
	}
	values["Release"].(map[string]any)["Service"] = r.ManagedBy
	files, err := engine.Render(c, values)
	if err != nil {
		return nil, fmt.Errorf("render the chart %s: %w", name, err)
	}
	maps.DeleteFunc(files, func(path, _ string) bool { return strings.HasSuffix(path, "/NOTES.txt") })
	_, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, fmt.Errorf("sort the objects of the chart %s: %w", name, err)
	}
	var objects []*unstructured.Unstructured
	for _, document := range sorted {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document.Content), &object.Object); err != nil {
			return nil, fmt.Errorf("chart %s: decode the output of %s: %w", name, document.Name, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

func load(name string) (*chart.Chart, error) {
	var files []*archive.BufferedFile
	err := fs.WalkDir(charts.Files, name, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(charts.Files, path)
		if err != nil {
			return err
		}
		files = append(files, &archive.BufferedFile{
			Name: strings.TrimPrefix(path, name+"/"), Data: content,
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the chart %s: %w", name, err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("load the chart %s: %w", name, err)
	}
	return c, nil
}
