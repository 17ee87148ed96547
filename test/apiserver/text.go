package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AppendText appends each string in an object, followed by a newline. From the metadata, AppendText appends only the
// values of labels and annotations. If the object does not exist, AppendText appends nothing.
func (s *Server) AppendText(out []byte, gvk schema.GroupVersionKind, key client.ObjectKey) []byte {
	k, ok := s.registry.byGVK[gvk]
	if !ok {
		return out
	}
	r := s.get(k, key)
	if r == nil {
		return out
	}
	for _, texts := range []map[string]string{r.meta.Labels, r.meta.Annotations} {
		for _, text := range texts {
			out = append(append(out, text...), '\n')
		}
	}
	return appendText(out, r.body)
}

func appendText(out []byte, value any) []byte {
	switch x := value.(type) {
	case string:
		return append(append(out, x...), '\n')
	case map[string]any:
		for key, v := range x {
			out = appendText(append(append(out, key...), '\n'), v)
		}
	case []any:
		for _, v := range x {
			out = appendText(out, v)
		}
	}
	return out
}
