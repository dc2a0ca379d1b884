// Compares abi.h, abi_constants.h and abi_calls.h with the headers of rdma-core.
// It is compiled and not run: TestABI does that where the headers are installed.

#include <stddef.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "abi.h"
#include "abi_constants.h"

#define OFFSET(s, off, c) _Static_assert(offsetof(struct s, c) == off, "offset of " #s "." #c);
#define WIDTH(s, bytes, c) _Static_assert(sizeof(((struct s *)0)->c) == (bytes), "size of " #s "." #c);
#define FIELD(s, off, type, field, c) OFFSET(s, off, c) WIDTH(s, sizeof(type), c)
#define ARRAY(s, off, type, n, field, c) OFFSET(s, off, c) WIDTH(s, sizeof(type) * (n), c)
#define MADE(s, size) _Static_assert(sizeof(struct s) == size, "size of struct " #s); ABI_##s(FIELD, ARRAY)
#define GROWS(s, size) _Static_assert(sizeof(struct s) >= size, "size of struct " #s); ABI_##s(FIELD, ARRAY)
#define SEEN(s) ABI_##s(FIELD, ARRAY)
ABI_STRUCTS(MADE, GROWS, SEEN)

// What stands in front of a context.
_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, sz) == ABI_SZ_BEFORE, "sz");
_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, query_port) ==
		       ABI_QUERY_PORT_BEFORE, "query_port");
_Static_assert(sizeof(struct verbs_context) - offsetof(struct verbs_context, query_port) == ABI_QUERY_PORT_SZ,
	       "size up to query_port");
void *extended(void) { return __VERBS_ABI_IS_EXTENDED; }
#define SAME_TYPE(a, b) _Static_assert(__builtin_types_compatible_p(a, b), #a);
SAME_TYPE(typeof(((struct verbs_context *)0)->query_port),
	  int (*)(struct ibv_context *, uint8_t, struct ibv_port_attr *, size_t))
SAME_TYPE(typeof(((struct verbs_context *)0)->sz), size_t)

#define CONSTANT(name, value) _Static_assert(name == (value), #name);
ABI_CONSTANTS(CONSTANT)
ABI_CONSTANTS_C(CONSTANT)

#define ABI(name) struct name
#define ABI_ENUM(name) enum name
#define ABI_BE64 __be64
#define ABI_BE16 __be16
#include "abi_calls.h"

#define FUNCTION(ret, fn, args) SAME_TYPE(typeof(fn), ret args)
ABI_VERBS(FUNCTION)
ABI_CM(FUNCTION)
#define POINTER(ret, op, args) SAME_TYPE(typeof(((struct ibv_context_ops *)0)->op), ret(*) args)
ABI_OPS(POINTER)
