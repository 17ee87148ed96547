package driver

import (
	"context"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// pageSize is the maximum number of objects in one answer.
const pageSize = 500

// object contains properties of a managed object.
type object struct {
	ref   types.ManagedObjectReference
	props map[string]any
}

func textOf(o object, name string) string {
	text, _ := o.props[name].(string)
	return text
}

func valueOf[T any](o object, name string) T {
	value, _ := o.props[name].(T)
	return value
}

// pathTo selects the objects at a path of an object.
func pathTo(kind, path string, next ...types.BaseSelectionSpec) *types.TraversalSpec {
	return &types.TraversalSpec{Type: kind, Path: path, Skip: types.NewBool(false), SelectSet: next}
}

// retrieve reads properties of all selected objects. If vCenter fails to return a page, retrieve fails.
// https://developer.broadcom.com/xapis/vsphere-web-services-api/latest/vmodl.query.PropertyCollector.html
func (s *session) retrieve(ctx context.Context, attempted string, objects []types.ObjectSpec,
	properties ...types.PropertySpec) ([]object, error) {
	content, err := s.content(ctx)
	if err != nil {
		return nil, err
	}
	ctx = httpapi.List(ctx)
	answer, err := methods.RetrievePropertiesEx(ctx, s, &types.RetrievePropertiesEx{This: content.PropertyCollector,
		SpecSet: []types.PropertyFilterSpec{{ObjectSet: objects, PropSet: properties}},
		Options: types.RetrieveOptions{MaxObjects: pageSize}})
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	var all []object
	seen := map[types.ManagedObjectReference]bool{}
	for result := answer.Returnval; result != nil; {
		for _, o := range result.Objects {
			if seen[o.Obj] {
				continue
			}
			seen[o.Obj] = true
			one := object{ref: o.Obj, props: map[string]any{}}
			for _, p := range o.PropSet {
				one.props[p.Name] = p.Val
			}
			for _, missing := range o.MissingSet {
				switch f := missing.Fault.Fault.(type) {
				case *types.NoPermission, *types.NotAuthenticated:
					return nil, translate(ctx, &taskError{f}, attempted)
				}
			}
			all = append(all, one)
		}
		if result.Token == "" {
			break
		}
		next, err := methods.ContinueRetrievePropertiesEx(ctx, s, &types.ContinueRetrievePropertiesEx{
			This: content.PropertyCollector, Token: result.Token})
		if err != nil {
			return nil, translate(ctx, err, attempted)
		}
		result = &next.Returnval
	}
	return all, nil
}

// read reads properties of one object. NotFound means that the object does not exist.
func (s *session) read(ctx context.Context, attempted string, ref types.ManagedObjectReference,
	paths ...string) (object,
	error) {
	all, err := s.retrieve(ctx, attempted, []types.ObjectSpec{{Obj: ref, Skip: types.NewBool(false)}},
		types.PropertySpec{Type: ref.Type, PathSet: paths})
	if err != nil {
		return object{}, err
	}
	if len(all) != 1 {
		return object{}, provider.Errorf(provider.Internal, "%s: vCenter returned %d objects instead of one", attempted,
			len(all))
	}
	return all[0], nil
}
