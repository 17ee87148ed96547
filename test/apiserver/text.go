package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AppendText appends all that an object says, but for what its metadata says beside labels and annotations: each text
// of it, with a line end. What is not there says nothing.
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
