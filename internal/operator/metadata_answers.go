package operator

import (
	"context"
	"net/http"
)

// acceptMetadata asks for the metadata of an object instead of the whole. All API servers know it; what is no object,
// such as a Status, comes as it is.
const acceptMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

type answeredBriefly struct{}

// briefly is for the deletion of one object: nobody reads what the API server answers but for the resource version,
// which a later read must wait for. The answer is as large as the object, and would be encoded, decoded, encoded and
// decoded.
func briefly(ctx context.Context) context.Context {
	return context.WithValue(ctx, answeredBriefly{}, true)
}

// briefTransport asks for metadata if the request must be answered briefly.
type briefTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t briefTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Context().Value(answeredBriefly{}) != nil {
		request = request.Clone(request.Context())
		request.Header.Set("Accept", acceptMetadata)
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t briefTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
