"""The texts of the synthetic corpus. Braces are filled by the generator, from its seed."""

from dataclasses import dataclass

from metacortex.memory import BranchState


@dataclass(frozen=True)
class Fact:
    """Something worth remembering, a question for it in other words, and a neighbour that answers another one."""

    topic: str
    text: str
    question: str
    neighbour: str


@dataclass(frozen=True)
class States:
    """Several memories in one state, a single one in another, and two questions for that one."""

    topic: str
    text: str
    values: tuple[str, ...]
    state: BranchState
    single: str
    single_state: BranchState
    questions: tuple[str, str]


@dataclass(frozen=True)
class Series:
    """One thing that changes: how its old values were put, how the current one is, and what is asked of it."""

    topic: str
    old: str
    current: str
    question: str
    other_question: str


FACTS = (
    Fact(
        "kitchen",
        "Sourdough turns out best with a dough of 78 percent water and a night in the fridge before baking.",
        "how wet should the bread dough be",
        "The bread knife was sharpened at the market stall and should not go into the dishwasher.",
    ),
    Fact(
        "kitchen",
        "The oven runs about fifteen degrees hotter than its dial says; set it lower for cakes.",
        "why do cakes burn in our oven",
        "The microwave stands on the left shelf because the right socket is loose.",
    ),
    Fact(
        "kitchen",
        "Guests with a nut allergy come on Sundays, so desserts for that day are made without almonds.",
        "what must the sunday dessert not contain",
        "On Saturdays breakfast is late, with eggs and toast.",
    ),
    Fact(
        "kitchen",
        "Coffee beans are ordered in the second week of the month from the roastery near the station.",
        "when do we buy new coffee",
        "The tea tin on the top shelf is only for green tea.",
    ),
    Fact(
        "garden",
        "Tomatoes on the balcony need shade after noon, otherwise the leaves curl.",
        "protecting the tomato plants from sun",
        "The tomato sauce recipe uses two kilos of fruit and one onion.",
    ),
    Fact(
        "garden",
        "The apple tree is pruned in late February, before the buds open.",
        "best time to cut the apple tree",
        "Apple cake is baked for the street party in September.",
    ),
    Fact(
        "garden",
        "Slugs stay away from the lettuce since copper tape was put around the raised bed.",
        "what keeps snails off the salad",
        "Lettuce seeds from last year are in the blue box.",
    ),
    Fact(
        "garden",
        "The rain barrel holds two hundred litres and is emptied before the first frost.",
        "what to do with the water barrel in winter",
        "The wheelbarrow's tyre loses air and needs a pump before use.",
    ),
    Fact(
        "health",
        "Ibuprofen upsets the stomach; paracetamol is the painkiller to take instead.",
        "which medicine against headache is tolerated",
        "Vitamin D drops are taken from October to March.",
    ),
    Fact(
        "health",
        "The dentist wants to see the lower left molar again in half a year.",
        "which tooth has to be checked again",
        "The optician has moved to the shopping centre on the ring road.",
    ),
    Fact(
        "health",
        "Knee exercises are done every second morning, three rounds of ten.",
        "training plan for the knee",
        "The running shoes are a size larger than ordinary shoes.",
    ),
    Fact(
        "health",
        "Sleep got better after screens were banned from the bedroom at ten in the evening.",
        "what helped against bad nights",
        "The bedroom window squeaks and wants a drop of oil.",
    ),
    Fact(
        "backend",
        "We chose PostgreSQL over a document database because reports need joins across orders and invoices.",
        "reason for the choice of a relational database",
        "Database backups are copied to a second region at three in the morning.",
    ),
    Fact(
        "backend",
        "Payments are retried at most three times with a growing pause, and then handed to a person.",
        "how often do we repeat a failed charge",
        "Payment receipts are sent as plain text, never as an attachment.",
    ),
    Fact(
        "backend",
        "Prices are stored as whole cents; floating point numbers are not allowed in the ledger.",
        "how is money represented in the code",
        "The ledger is exported as CSV on the first working day of a month.",
    ),
    Fact(
        "backend",
        "Feature flags older than ninety days are deleted by the team that added them.",
        "cleaning up stale toggles",
        "The team's flag hangs in the meeting room on the third floor.",
    ),
    Fact(
        "frontend",
        "Buttons use sentence case, and a destructive action is never the default one.",
        "writing style of button labels",
        "The settings page was moved below the profile menu.",
    ),
    Fact(
        "frontend",
        "Screen readers announced the cart twice, so the live region is now on the total alone.",
        "accessibility problem of the shopping basket",
        "The shopping cart icon was redrawn with rounder wheels.",
    ),
    Fact(
        "frontend",
        "Pictures are served as AVIF with a JPEG fallback to keep pages below one megabyte.",
        "image format that keeps the site light",
        "The team picture on the about page dates from last summer.",
    ),
    Fact(
        "frontend",
        "Dates are shown in the reader's own time zone, with the UTC time in a tooltip.",
        "how timestamps appear to visitors",
        "The calendar widget begins its week on Monday.",
    ),
    Fact(
        "travel",
        "Night trains are preferred to flights whenever the journey takes less than fourteen hours.",
        "attitude towards flying",
        "The airport bus leaves from platform four every half hour.",
    ),
    Fact(
        "travel",
        "A window seat facing forward is booked on trains because riding backwards makes dizzy.",
        "where to sit on a railway journey",
        "The train museum is closed on Tuesdays.",
    ),
    Fact(
        "travel",
        "The passport expires in the autumn of 2031; renewing it takes about six weeks.",
        "until when is the travel document good",
        "A copy of the insurance card is in the wallet's inner pocket.",
    ),
    Fact(
        "travel",
        "Hotels must be within walking distance of a swimming pool.",
        "what matters when choosing accommodation",
        "The swimming bag hangs behind the cellar door.",
    ),
)

INCIDENT = (
    "backend-incidents",
    "Incident {code}: the {service} service answered with {status}; {cause}, fixed in release {version}.",
)
SERVICES = ("billing", "search", "upload", "login", "export", "mail", "report", "sync")
CAUSES = (
    "the connection pool was exhausted",
    "a certificate had run out",
    "the disk of the queue was full",
    "a migration held a lock",
)

MANY = (
    ("pets", "The cat takes {value} with her evening meal.", ("drops against worms", "a joint tablet", "salmon oil")),
    ("bicycles", "The blue bicycle got {value} this spring.", ("new brake pads", "a longer chain", "a brass bell")),
    ("piano", "For the winter recital {value} is being practised.", ("a nocturne", "a slow waltz", "a small prelude")),
)
MANY_QUESTIONS = (
    ("what does the cat get besides food", "pets"),
    ("which parts of the bike were replaced", "bicycles"),
    ("pieces that are rehearsed on the piano", "piano"),
)

CHANGES = (
    Series(
        "workshop",
        "The password of the workshop's Wi-Fi is {value}.",
        "Since the router was exchanged, everybody in the workshop signs in with {value}.",
        "What is the password of the workshop's Wi-Fi?",
        "How do I get online in the workshop?",
    ),
    Series(
        "flat",
        "The monthly rent of the flat is {value} euros.",
        "From the new contract on, {value} euros leave the account for the flat every month.",
        "What is the monthly rent of the flat?",
        "How much does living here cost now?",
    ),
    Series(
        "mobile-app",
        "The newest release of the mobile app is version {value}.",
        "The store now offers {value} to everybody who installs the mobile app.",
        "What is the newest release of the mobile app?",
        "Which build do users of the app download?",
    ),
)
CORRECTED = Series(
    "club",
    "The members of the club meet in room {value} of the community centre.",
    "Room {value} is where the club really meets; what was noted before was a mistake.",
    "In which room of the community centre do the members of the club meet?",
    "Where does the club come together?",
)
PRICES = (
    Series(
        "pool-tickets",
        "In {year} a season ticket for the public pool costs {value} euros.",
        "As long as nothing else is decided, a season ticket for the public pool costs {value} euros.",
        "What does a season ticket for the public pool cost?",
        "price of swimming all summer",
    ),
    Series(
        "on-call",
        "In {year} the on-call phone of the platform team has the extension {value}.",
        "As long as nothing else is decided, the on-call phone of the platform team has the extension {value}.",
        "Which extension has the on-call phone of the platform team?",
        "number to ring when the platform is down",
    ),
)
STATES = (
    States(
        "holiday",
        "The family goes to the {value} for the summer holiday.",
        ("mountains", "lakes", "islands", "vineyards", "moors"),
        BranchState.WIP,
        "It is booked: two weeks in a cabin by the fjord, from the first day of July.",
        BranchState.ACTIVE,
        ("Where does the family go for the summer holiday?", "what was settled about the summer"),
    ),
    States(
        "logo",
        "A {value} is part of the association's printed matter.",
        ("heron", "lantern", "wave", "compass", "bridge"),
        BranchState.ACTIVE,
        "To be discussed: a kingfisher on letters and posters.",
        BranchState.WIP,
        ("What is part of the association's printed matter?", "ideas for how letters could look"),
    ),
    States(
        "allotment",
        "Bed {value} of the allotment is for beans.",
        ("one", "two", "three", "four", "five"),
        BranchState.ACTIVE,
        "Several notes on what grows where were put together: herbs at the fence, potatoes at the back.",
        BranchState.MERGED,
        ("Which bed of the allotment is for beans?", "plan of what grows where"),
    ),
)
ORIGINS = (
    (
        "music",
        "Apparently {value} is the music that is liked most while working.",
        "Said in so many words: quiet while working, and no music at all.",
        "Which music is liked most while working?",
        ("jazz", "ambient", "opera", "folk", "techno", "choral singing"),
    ),
    (
        "breakfast",
        "It seems that {value} is eaten for breakfast on working days.",
        "Said in so many words: nothing but black coffee before ten.",
        "What is eaten for breakfast on working days?",
        ("porridge", "toast", "fruit", "an omelette", "yoghurt", "a pretzel"),
    ),
)
PROJECTS = ("atlas", "borealis", "cobalt", "dolomite", "ember", "fjord")
PROJECT_TEXT = "Releases go out on {value}, and whoever is on duty stays until the evening."
PROJECT_QUESTION = "On which day do releases go out?"
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "the first Saturday of a month")
# None of the subjects above.
OFF_TOPIC = (
    "why does the moon look larger near the horizon",
    "How do I tie a bow tie?",
    "who wrote the first detective novel",
    "why is a rainbow curved",
    "Which dinosaurs had feathers?",
    "what started the Thirty Years' War",
    "folding a hat out of newspaper",
    "How do magnets lose their strength?",
    "how does the knight move in chess",
    "When is a number called prime?",
    "how pearls form in oysters",
    "Who were the gladiators of ancient Rome?",
    "getting ink stains out of a silk shirt",
    "Which dynasty built the Great Wall of China?",
    "difference between a sonnet and a limerick",
    "What causes an earthquake?",
    "how penguins keep warm",
    "telling a crocodile from an alligator",
    "Who painted the ceiling of the Sistine Chapel?",
    "plot of Hamlet in a few words",
    "How far away is the nearest star?",
    "what a carburettor does",
    "How does a sundial work?",
    "inventor of the printing press",
    "Who was the first woman to win a Nobel Prize?",
    "how many chambers the heart of a frog has",
    "What is the offside rule in football?",
    "grammatical cases of Finnish",
    "How are fossils dated?",
    "what Plato meant by the cave",
    "How do I knit a scarf?",
    "ideas for a carnival costume",
    "What does a barometer measure?",
    "who discovered the tomb of Tutankhamun",
    "When was the Berlin Wall torn down?",
    "speech for a silver wedding",
    "How is gunpowder made?",
    "why leap years exist",
    "How are judges of a supreme court appointed?",
    "meaning of the colours in the Olympic rings",
    "Which element has the highest melting point?",
    "how spiders spin a web",
    "What is the theory of relativity about?",
    "card trick for beginners",
    "Who directed the film Metropolis?",
    "how rubber is made from latex",
    "What did the Vikings trade?",
    "how to remove a splinter of glass from a rug",
    "Why do zebras have stripes?",
    "choosing a name for a newborn girl",
    "What is an eclipse of the sun?",
    "history of the Ottoman Empire",
    "How do candles burn without smoke?",
    "who holds the record in the long jump",
    "What makes diamonds so hard?",
    "difference between a simile and a metaphor",
    "How does a submarine dive?",
    "which language is spoken in Madagascar",
    "Who succeeded Queen Victoria?",
    "how a parliament passes a law",
)
