// Package edge is the tenants' door: OpenAIService, its REST gateway, and the HTTP front that holds both.
//
// The service is the only place where a request is served. The gateway calls it over a connection inside of the
// process, so that REST and gRPC tenants meet the same checks. Of what a tenant sends, only the API key and the body
// count: other headers and metadata go nowhere. The one exception is [HeaderPair], which is refused but for the
// operator's own canaries: a tenant never steers. The front knows the key, and has counted the request, before it reads a
// byte of the body; gRPC's own server never sees a body that is not all here.
package edge
